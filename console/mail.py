"""Which server takes the console's mail, read once from the environment. Knows no Django.

Promises that a value which cannot be used stops the start with its name and what to write, and
that the password may come from a file (`EMBERLINE_SMTP_PASSWORD_FILE`) and is in no repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.core import environment
from console.core.environment import SettingError

SECURITY = ("starttls", "tls", "none")
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True, slots=True)
class Mail:
    """`settings.MAIL`. Without a host no mail is sent."""

    host: str = ""
    port: int = 587
    security: str = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str = ""


def load(env: Mapping[str, str]) -> Mail:
    host = environment.text(env, "EMBERLINE_SMTP_HOST")
    security = environment.choice(env, "EMBERLINE_SMTP_SECURITY", "starttls", SECURITY)
    user = environment.text(env, "EMBERLINE_SMTP_USER")
    password = environment.text(env, "EMBERLINE_SMTP_PASSWORD")
    sender = environment.text(env, "EMBERLINE_SMTP_FROM") or (user if "@" in user else "")
    if host and "@" not in sender:
        remedy = "write the address mail comes from, as in emberline@example.org"
        raise SettingError("EMBERLINE_SMTP_FROM", sender, remedy)
    if password and security == "none":
        remedy = "write starttls or tls: a password is not sent in clear text"
        raise SettingError("EMBERLINE_SMTP_SECURITY", security, remedy)
    port = environment.port(env, "EMBERLINE_SMTP_PORT", _PORTS[security])
    return Mail(host, port, security, user, password, sender)
