"""SMTP server from environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from console.core.environment import SettingError, choice, port, text

SECURITY = ("starttls", "tls", "none")
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True, slots=True)
class Mail:
    """SMTP server of the console. `settings.MAIL`. Without a host no mail is sent."""

    host: str = ""
    port: int = 587
    security: str = "starttls"
    user: str = ""
    password: str = field(default="", repr=False)
    sender: str = ""


def load(env: Mapping[str, str]) -> Mail:
    host = text(env, "EMBERLINE_SMTP_HOST")
    security = choice(env, "EMBERLINE_SMTP_SECURITY", "starttls", SECURITY)
    user = text(env, "EMBERLINE_SMTP_USER")
    password = text(env, "EMBERLINE_SMTP_PASSWORD")
    sender = text(env, "EMBERLINE_SMTP_FROM") or (user if "@" in user else "")
    if host and "@" not in sender:
        remedy = "write the sender address, such as emberline@example.org"
        raise SettingError("EMBERLINE_SMTP_FROM", sender, remedy)
    if password and security == "none":
        remedy = "write starttls or tls: a password is not sent in clear text"
        raise SettingError("EMBERLINE_SMTP_SECURITY", security, remedy)
    smtp_port = port(env, "EMBERLINE_SMTP_PORT", _PORTS[security])
    return Mail(host, smtp_port, security, user, password, sender)
