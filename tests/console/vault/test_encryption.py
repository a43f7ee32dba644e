"""Encryption: a stolen database discloses no secret."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from django.conf import settings as live
from pytest_django import Settings

from console.vault import encryption

OLD, NEW = "o" * 32, "n" * 32


def use(settings: Settings, *keys: str) -> None:
    settings.EMBERLINE = replace(live.EMBERLINE, encryption_keys=keys)


def test_secret_is_decrypted_for_its_purpose_only(settings: Settings) -> None:
    use(settings, OLD)
    sealed = encryption.seal("kubeconfig of ö", "cluster/1")
    assert "kubeconfig" not in sealed
    assert encryption.unseal(sealed, "cluster/1") == "kubeconfig of ö"
    with pytest.raises(encryption.Unreadable):
        encryption.unseal(sealed, "cluster/2")


def test_keys_are_rotated_one_by_one(settings: Settings) -> None:
    use(settings, OLD)
    sealed = encryption.seal("text", "p")
    use(settings, NEW, OLD)
    assert encryption.unseal(sealed, "p") == "text"
    assert encryption.is_outdated(sealed, "p")
    again = encryption.seal("text", "p")
    assert not encryption.is_outdated(again, "p")
    use(settings, NEW)
    assert encryption.unseal(again, "p") == "text"
    with pytest.raises(encryption.Unreadable, match="EMBERLINE_ENCRYPTION_KEY"):
        encryption.unseal(sealed, "p")


def test_pod_specific_key_gives_a_warning(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "encryption_key").write_text(OLD)
    settings.EMBERLINE = replace(live.EMBERLINE, var=tmp_path, encryption_keys=(OLD,))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert encryption.encryption_key() == []
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    (warned,) = encryption.encryption_key()
    assert "ENCRYPTION_KEY_FILE" in str(warned.hint)
    assert OLD not in str(warned)
    settings.EMBERLINE = replace(live.EMBERLINE, var=tmp_path, encryption_keys=(NEW,))
    assert encryption.encryption_key() == []
