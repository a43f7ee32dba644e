"""`emberline doctor`: each failure has a remedy, and serious ones an exit code."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as live
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test.utils import CaptureQueriesContext

from console.clusters import refresh
from console.clusters.choices import ClusterPhase, ClusterReason
from console.system import preflight
from console.web import health

pytestmark = pytest.mark.django_db


def doctor() -> str:
    out = StringIO()
    call_command("emberline", "doctor", stdout=out)
    return out.getvalue()


@pytest.fixture
def on_kubernetes(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As a pod that was given everything, in a cluster that grants everything."""
    for name in ("l2", "token"):
        (tmp_path / name).write_text("x")
    settings.EMBERLINE = replace(
        live.EMBERLINE,
        provisioner="kubernetes",
        keys="database",
        worker_image="w:1",
        engine_image="e:1",
        l2_password_file=tmp_path / "l2",
        targets_token_file=tmp_path / "token",
    )
    monkeypatch.setenv("DJANGO_SECRET_KEY_FILE", "/given")
    monkeypatch.setenv("EMBERLINE_ENCRYPTION_KEY_FILE", "/given")
    monkeypatch.setattr(
        refresh,
        "survey_cluster",
        lambda _row: refresh.ClusterObservation(ClusterPhase.READY, ClusterReason.ANSWERS),
    )
    return tmp_path


def refused(*parts: str) -> None:
    with pytest.raises(CommandError) as found:
        doctor()
    (line,) = (line for line in str(found.value).splitlines() if line.startswith("FAIL"))
    for part in parts:
        assert part in line


def test_valid_local_setup_passes() -> None:
    reported = doctor()
    assert "FAIL" not in reported
    assert "ok    database: " in reported
    assert "cluster" not in reported


def test_valid_pod_setup_passes(on_kubernetes: Path) -> None:
    reported = doctor()
    assert "FAIL" not in reported
    for subject in ("EMBERLINE_ENCRYPTION_KEY", "EMBERLINE_WORKER_IMAGE", "cluster"):
        assert f"ok    {subject}: " in reported


def test_pending_migrations() -> None:
    MigrationRecorder.Migration.objects.filter(app="system").delete()
    refused("schema", "not applied", "console.programs migrate")


def test_unreachable_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        health, "verdicts", lambda: {"database": "ok", "broker": "failed: OperationalError"}
    )
    refused("broker", "OperationalError", "REDIS_URL")


def test_keys_generated_separately_by_each_pod(
    on_kubernetes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EMBERLINE_ENCRYPTION_KEY_FILE")
    refused("EMBERLINE_ENCRYPTION_KEY", "cannot be decrypted by others", "from a Secret")


def test_unmounted_key(on_kubernetes: Path) -> None:
    (on_kubernetes / "l2").unlink()
    refused("EMBERLINE_L2_PASSWORD_FILE", "not readable", "Mount the Secret")


def test_missing_image_name(on_kubernetes: Path, settings: Any) -> None:
    settings.EMBERLINE = replace(settings.EMBERLINE, engine_image="")
    refused("EMBERLINE_ENGINE_IMAGE", "deploy/containers")


def test_missing_rights(on_kubernetes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = refresh.ClusterObservation(
        ClusterPhase.DEGRADED, ClusterReason.RIGHTS_MISSING, "May not make deployments.apps."
    )
    monkeypatch.setattr(refresh, "survey_cluster", lambda _row: seen)
    refused("cluster", "deployments.apps", "Role")


def test_unusual_settings_are_notes(settings: Any, tmp_path: Path) -> None:
    settings.STATIC_ROOT = tmp_path
    assert "note  static files: not collected" in doctor()


def test_preflight_writes_nothing(on_kubernetes: Path) -> None:
    with CaptureQueriesContext(connection) as queries:
        preflight.ask()
    # The readiness check tries an update of no row.
    harmless = (
        "SELECT",
        "PRAGMA",
        "SAVEPOINT",
        "RELEASE",
        "UPDATE django_migrations SET name = name",
    )
    assert not [q for q in queries if not q["sql"].strip().startswith(harmless)]
