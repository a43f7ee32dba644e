"""Encrypted secrets shared by the console's processes, including its own keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings as live

from console.vault import store
from console.vault.models import SealedText
from endpoints.keys import storage

pytestmark = pytest.mark.django_db
OTHER = "another-key-which-is-long-enough-to-be-one"


def test_stored_secret_is_returned_and_the_row_is_opaque() -> None:
    store.put("a", "open sesame")
    store.put("b", "open sesame")
    assert store.get("a") == "open sesame"
    rows = [row.sealed for row in SealedText.objects.all()]
    assert "sesame" not in str(rows)
    store.put("a", "changed")
    assert (store.get("a"), store.get("b")) == ("changed", "open sesame")
    store.drop("a")
    store.drop("a")
    assert store.get("a") == ""


def test_row_moved_to_another_name_is_not_decrypted() -> None:
    store.put("a", "open sesame")
    SealedText.objects.filter(name="a").update(name="b")
    assert store.get("b") == ""


def test_value_encrypted_by_another_key_counts_as_absent(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("a", "open sesame")
    own = live.EMBERLINE.encryption_keys
    settings.EMBERLINE = replace(live.EMBERLINE, encryption_keys=(OTHER,))
    assert store.get("a") == ""
    assert "vault: a: " in caplog.text
    assert "sesame" not in caplog.text
    settings.EMBERLINE = replace(live.EMBERLINE, encryption_keys=(OTHER, *own))
    assert store.get("a") == "open sesame"  # rotation puts the new key before the old one


@pytest.mark.parametrize("where", ["file", "database"])
def test_console_key_is_found_by_all_processes(settings: Any, where: str) -> None:
    settings.EMBERLINE = replace(live.EMBERLINE, keys=where)
    storage.write_console_key("vaulted", "ebk_secret")
    assert storage.read_console_key("vaulted") == "ebk_secret"
    assert storage.console_key_file("vaulted").exists() is (where == "file")
    assert SealedText.objects.exists() is (where == "database")
    storage.remove_console_key("vaulted")
    assert storage.read_console_key("vaulted") == ""
