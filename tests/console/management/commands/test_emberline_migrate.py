"""`emberline_migrate`, run by an installer before the programs start."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth import authenticate
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db.migrations.recorder import MigrationRecorder

from console.accounts.models import User
from console.audit import selectors as audit


def migrate(*words: str) -> str:
    out = StringIO()
    call_command("emberline_migrate", *words, stdout=out, verbosity=0)
    return out.getvalue()


@pytest.fixture
def password_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "password"
    path.write_text("correct-horse-battery\n")
    monkeypatch.setenv("EMBERLINE_ADMIN_PASSWORD_FILE", str(path))
    return path


@pytest.mark.django_db
def test_first_admin_gets_the_password_of_the_file_once(password_file: Path) -> None:
    reported = migrate()
    assert "admin" in reported
    assert "correct-horse" not in reported
    assert authenticate(username="admin", password="correct-horse-battery") is not None
    password_file.write_text("another-password-later")
    assert migrate() == ""
    assert authenticate(username="admin", password="correct-horse-battery") is not None
    assert User.objects.count() == 1
    assert "correct-horse" not in str(list(audit.list_events()))


@pytest.mark.django_db
def test_weak_password_is_rejected(password_file: Path) -> None:
    password_file.write_text("12345")
    with pytest.raises(ValidationError):
        migrate()
    assert not User.objects.exists()


@pytest.mark.django_db
def test_missing_password_states_the_remedy() -> None:
    assert "emberline_admin --create" in migrate()


@pytest.mark.django_db
def test_check_fails_while_migrations_are_pending(settings: Any) -> None:
    assert "up to date" in migrate("--check")
    MigrationRecorder.Migration.objects.filter(app="system").delete()
    with pytest.raises(CommandError, match=r"not applied yet: system\.0001"):
        migrate("--check")
