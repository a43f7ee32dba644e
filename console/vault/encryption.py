"""Encryption of stored secrets.

A text can be decrypted only for the purpose it was encrypted for. The first key encrypts and every
key decrypts, which allows rotation. Errors contain neither key nor text.
"""

from __future__ import annotations

import base64
import hmac
import os
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.checks import CheckMessage, register
from django.core.checks import Warning as Caution

REMEDY = (
    "Append the previous key to EMBERLINE_ENCRYPTION_KEY (or its file), or upload "
    "the kubeconfig again."
)


class Unreadable(Exception):
    """Encrypted with a key that this console does not have."""

    def __init__(self) -> None:
        super().__init__(f"Encrypted data cannot be read with the current key. {REMEDY}")


def seal(text: str, purpose: str) -> str:
    return _box(purpose).encrypt(text.encode()).decode("ascii")


def unseal(sealed: str, purpose: str) -> str:
    try:
        return _box(purpose).decrypt(sealed.encode("ascii")).decode()
    except InvalidToken:
        raise Unreadable from None


def is_outdated(sealed: str, purpose: str) -> bool:
    """Return whether a key other than the first encrypted it; raise `Unreadable` if no key decrypts
    it.
    """
    unseal(sealed, purpose)
    try:
        _keys(purpose)[0].decrypt(sealed.encode("ascii"))
    except InvalidToken:
        return True
    return False


def _box(purpose: str) -> MultiFernet:
    return MultiFernet(_keys(purpose))


def _keys(purpose: str) -> list[Fernet]:
    """Return keys derived per purpose, so that a text cannot be moved to another row."""
    return [
        Fernet(base64.urlsafe_b64encode(hmac.digest(key.encode(), purpose.encode(), "sha256")))
        for key in settings.EMBERLINE.encryption_keys
    ]


@register()
def encryption_key(**_: Any) -> list[CheckMessage]:
    """Report a generated key in a pod: it is lost with the pod and differs between pods."""
    own = settings.EMBERLINE.secrets / "encryption_key"
    in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    if not in_a_pod or not own.exists():
        return []
    if own.read_text(encoding="utf-8").strip() not in settings.EMBERLINE.encryption_keys:
        return []
    return [
        Caution(
            f"Kubeconfigs are encrypted with a key of this pod's own ({own}).",
            hint="Set EMBERLINE_ENCRYPTION_KEY_FILE to a key from a Secret, the same in every pod.",
            id="emberline.W008",
        )
    ]
