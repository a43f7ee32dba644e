"""Texts at rest which only a console with the key can read.

Promises that a sealed text opens for the purpose it was sealed for and for no other, that the first
key seals and every key opens (so that keys can be changed), and that neither key nor text is in an
error. Must not know what is sealed.
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
    "Put the earlier key behind the present one in EMBERLINE_ENCRYPTION_KEY"
    " (or its file), or give the kubeconfig anew."
)


class Unreadable(Exception):
    """It was sealed with a key which this console does not have."""

    def __init__(self) -> None:
        super().__init__(f"What is kept encrypted cannot be read with the present key. {REMEDY}")


def seal(text: str, purpose: str) -> str:
    return _box(purpose).encrypt(text.encode()).decode("ascii")


def unseal(sealed: str, purpose: str) -> str:
    try:
        return _box(purpose).decrypt(sealed.encode("ascii")).decode()
    except InvalidToken:
        raise Unreadable from None


def outdated(sealed: str, purpose: str) -> bool:
    """Whether another than the first key sealed it; `Unreadable` if none of ours did."""
    unseal(sealed, purpose)
    try:
        _keys(purpose)[0].decrypt(sealed.encode("ascii"))
    except InvalidToken:
        return True
    return False


def _box(purpose: str) -> MultiFernet:
    return MultiFernet(_keys(purpose))


def _keys(purpose: str) -> list[Fernet]:
    """One for each purpose, so that a row's text cannot be put into another row."""
    return [
        Fernet(base64.urlsafe_b64encode(hmac.digest(key.encode(), purpose.encode(), "sha256")))
        for key in settings.EMBERLINE.encryption_keys
    ]


@register()
def encryption_key(**_: Any) -> list[CheckMessage]:
    """In a pod, a key that was made there goes with it, and its neighbour makes another."""
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
