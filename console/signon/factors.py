"""Second factors by django-allauth: TOTP (RFC 6238), recovery codes and passkeys (WebAuthn).

Added here: secrets are encrypted with the console's key, a TOTP code is accepted once across
processes, and changes are audited and end the user's other sessions.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from typing import Any

from allauth.core import context
from allauth.core.internal.cryptokit import compare_user_code, normalize_user_code
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth as totp
from django.contrib.auth.base_user import AbstractBaseUser
from django.db import transaction
from django.http import HttpRequest
from django.http.request import split_domain_port

from console.accounts.models import User
from console.audit.record import record
from console.signon.core.configuration import LOOPBACK
from console.vault import encryption
from console.vault.key_rotation import EncryptedColumns

log = logging.getLogger(__name__)

PURPOSE = "signon/mfa"
# Entries of `Authenticator.data` that the adapter encrypts.
_ENCRYPTED = ("secret", "seed", "migrated_codes")
# Recovery codes alone are no factor: they replace one.
FACTORS = (Authenticator.Type.TOTP, Authenticator.Type.WEBAUTHN)


class FactorAdapter(DefaultMFAAdapter):
    """allauth adapter: encryption, names and messages."""

    error_messages = {
        **DefaultMFAAdapter.error_messages,
        "incorrect_code": "Invalid or already used code. Enter the next code.",
        "cannot_generate_recovery_codes": "Set up an authenticator app or a passkey first.",
    }

    def encrypt(self, text: str) -> str:
        return encryption.seal(text, PURPOSE)

    def decrypt(self, encrypted_text: str) -> str:
        """Return the text, or a random secret that no code matches if it cannot be decrypted."""
        try:
            return encryption.unseal(encrypted_text, PURPOSE)
        except encryption.Unreadable as error:
            log.error("Could not decrypt a second factor: %s", error)
            return totp.generate_totp_secret()

    def get_totp_issuer(self) -> str:
        """Include the host, which distinguishes consoles in the app."""
        return f"Emberline {context.request.get_host()}"

    def get_totp_label(self, user: AbstractBaseUser) -> str:
        return f"{self.get_totp_issuer()}:{user.get_username()}"

    def generate_authenticator_name(self, user: AbstractBaseUser, type: str) -> str:  # noqa: A002
        return f"Passkey {Authenticator.objects.filter(user_id=user.pk, type=type).count() + 1}"


def is_on(user: User) -> bool:
    return Authenticator.objects.filter(user=user, type__in=FACTORS).exists()


def has_passkey(user: User) -> bool:
    return Authenticator.objects.filter(user=user, type=Authenticator.Type.WEBAUTHN).exists()


def are_passkeys_usable(request: HttpRequest) -> bool:
    """Return whether browsers allow passkeys at this address: a domain with TLS, or localhost."""
    host, _port = split_domain_port(request.get_host())
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return request.is_secure() or host in LOOPBACK
    return False


@transaction.atomic
def use_code(user: User, code: str) -> Authenticator | None:
    """Use up a TOTP or recovery code; return None if it is invalid or was used before."""
    code = normalize_user_code(code)
    rows = Authenticator.objects.select_for_update(no_key=True).filter(user=user)
    for row in rows.exclude(type=Authenticator.Type.WEBAUTHN):
        if row.wrap().validate_code(code):
            is_totp = row.type == Authenticator.Type.TOTP
            return row if not is_totp or _take_step(row, code) else None
    return None


def _take_step(row: Authenticator, code: str) -> bool:
    """Store the time step of an accepted code; return False for an earlier or the same step.

    allauth remembers used codes for one step and per process only.
    """
    secret = FactorAdapter().decrypt(row.data["secret"])
    step = max(
        counter
        for counter in totp.yield_hotp_counters_from_time()
        if compare_user_code(actual=code, expected=current_code(secret, counter))
    )
    if step <= row.data.get("last_step", 0):
        return False
    row.data["last_step"] = step
    row.save(update_fields=["data"])
    return True


def current_code(secret: str, step: int | None = None) -> str:
    """Return the TOTP code of a time step (30 s each), by default the current one."""
    return totp.format_hotp_value(
        totp.hotp_value(secret, int(time.time()) // 30 if step is None else step)
    )


@transaction.atomic
def turn_off(actor: User | None, user: User) -> bool:
    """Remove every factor of the user; return whether there was one."""
    removed, _ = Authenticator.objects.filter(user=user).delete()
    if removed:
        record(actor, "user.factor.reset", f"user/{user.username}")
    return bool(removed)


def _purpose(_row: Any, name: str) -> str | None:
    return PURPOSE if name in _ENCRYPTED else None


SEALED = EncryptedColumns(
    Authenticator, ("data",), purpose=_purpose, title=lambda row: f"user/{row.user.username}"
)
