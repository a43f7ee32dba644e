"""Second factor: TOTP (RFC 6238) and recovery codes.

A code is accepted once, across processes and concurrent requests. Secrets are encrypted per user.
Recovery codes are shown once and are single-use.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import secrets
import struct
import time
from io import BytesIO
from typing import Any
from urllib.parse import quote, urlencode

import qrcode
from django.db import transaction
from django.utils import timezone
from qrcode.image.svg import SvgPathImage

from console.accounts.models import User
from console.audit.record import record
from console.signon.models import Factor
from console.vault import encryption
from console.vault.key_rotation import EncryptedColumns

log = logging.getLogger(__name__)

CODE, RECOVERY = "a code", "a recovery code"
_STEP_S = 30
_DIGITS = 6
# Accepted clock skew: one step in either direction.
_STEPS = (-1, 0, 1)
_RECOVERY_CODES = 10
_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


def is_on(user: User) -> bool:
    return Factor.objects.filter(user=user).exists()


def factor_of(user: User) -> Factor | None:
    return Factor.objects.filter(user=user).first()


def new_secret() -> str:
    return base64.b32encode(secrets.token_bytes(20)).decode("ascii")


def otpauth_uri(user: User, secret: str, host: str) -> str:
    """Return the otpauth URI; `host` distinguishes consoles."""
    label = quote(f"Emberline {host}:{user.username}")
    return f"otpauth://totp/{label}?{urlencode({'secret': secret, 'issuer': f'Emberline {host}'})}"


def qr_code(text: str) -> str:
    """Return the QR code as inline SVG, so that no image request contains the secret."""
    kept = BytesIO()
    qrcode.make(text, image_factory=SvgPathImage, border=2).save(kept)
    svg = kept.getvalue().decode()
    return svg[svg.index("<svg") :]


@transaction.atomic
def turn_on(user: User, secret: str, code: str) -> list[str]:
    """Enable the factor; return the recovery codes, or [] if the code is wrong."""
    step = _matching_step(secret, code, 0)
    if not step or is_on(user):
        return []
    codes = _recovery_codes()
    Factor.objects.create(
        user=user,
        secret=encryption.seal(secret, _purpose(user)),
        last_step=step,
        **_encrypt_codes(user, codes),
    )
    record(user, "user.factor.on", f"user/{user.username}")
    return codes


@transaction.atomic
def turn_off(actor: User | None, user: User) -> bool:
    gone, _ = Factor.objects.filter(user=user).delete()
    if gone:
        own = actor is not None and actor.pk == user.pk
        record(actor, "user.factor.off" if own else "user.factor.reset", f"user/{user.username}")
    return bool(gone)


@transaction.atomic
def new_recovery_codes(user: User) -> list[str]:
    codes = _recovery_codes()
    Factor.objects.filter(user=user).update(**_encrypt_codes(user, codes))
    record(user, "user.factor.recovery_codes", f"user/{user.username}")
    return codes


@transaction.atomic
def use_code(user: User, code: str) -> str:
    """Use up a code; return its kind, "" if wrong."""
    factor = Factor.objects.select_for_update().filter(user=user).first()
    if factor is None:
        return ""
    try:
        secret = encryption.unseal(factor.secret, _purpose(user))
        codes: list[str] = json.loads(encryption.unseal(factor.recovery, _purpose(user)))
    except encryption.Unreadable as error:
        log.error("Could not decrypt the second factor of user %s: %s", user.pk, error)
        return ""
    step = _matching_step(secret, code, factor.last_step)
    if step:
        facts: dict[str, object] = {"last_step": step}
    elif (typed := _normalize(code)) in map(_normalize, codes):
        facts = _encrypt_codes(user, [one for one in codes if _normalize(one) != typed])
    else:
        return ""
    Factor.objects.filter(pk=factor.pk).update(last_used_at=timezone.now(), **facts)
    return CODE if step else RECOVERY


def code_at(secret: str, step: int) -> str:
    """Return the code by RFC 4226's dynamic truncation of HMAC-SHA-1."""
    digest = hmac.digest(base64.b32decode(secret), struct.pack(">Q", step), hashlib.sha1)
    offset = digest[-1] & 15
    number: int = struct.unpack(">I", digest[offset : offset + 4])[0] & 0x7FFFFFFF
    return f"{number % 10**_DIGITS:0{_DIGITS}}"


def _matching_step(secret: str, code: str, after: int) -> int:
    """Return the time step of the code, 0 if none; steps up to `after` are used up."""
    now = int(time.time()) // _STEP_S
    typed = _normalize(code)
    found = 0
    for step in (now + off for off in _STEPS):
        if hmac.compare_digest(code_at(secret, step), typed) and step > after:
            found = step
    return found


def _recovery_codes() -> list[str]:
    """Return codes of about 49 bits each without look-alike characters."""
    texts = ("".join(secrets.choice(_ALPHABET) for _ in range(10)) for _ in range(_RECOVERY_CODES))
    return [f"{text[:5]}-{text[5:]}" for text in texts]


def _encrypt_codes(user: User, codes: list[str]) -> dict[str, object]:
    sealed = encryption.seal(json.dumps(codes), _purpose(user))
    return {"recovery": sealed, "recovery_left": len(codes)}


def _normalize(code: str) -> str:
    text = "".join(code.split()).replace("-", "").lower()
    return text if text.isascii() else ""


def _purpose(user: User) -> str:
    return _sealed_for(user.pk)


def _sealed_for(person: Any) -> str:
    return f"signon/factor/{person}"


SEALED = EncryptedColumns(
    Factor,
    ("secret", "recovery"),
    purpose=lambda factor, _column: _sealed_for(factor.user_id),
    title=lambda factor: f"user/{factor.user.username}",
)
