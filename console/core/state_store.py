"""State store of the installation, through which the routers of an endpoint exchange state.

Used by endpoints of the console's own cluster, unless they have a store of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

_URL = "EMBERLINE_STATE_STORE_URL"
_PASSWORD_FILE = "EMBERLINE_STATE_STORE_PASSWORD_FILE"  # noqa: S105
_CA_FILE = "EMBERLINE_STATE_STORE_CA_FILE"
NAMES = (_URL, "EMBERLINE_STATE_STORE_USER", _PASSWORD_FILE, _CA_FILE)
_SCHEMES = ("redis", "rediss")
_MAX_DATABASE = 1023
_BLANK = re.compile(r"\s")
_EXAMPLE = "write redis://HOST:6379/0, or rediss:// for TLS"


class StateStoreError(ValueError):
    """Invalid setting; `value` contains no secret."""

    def __init__(self, name: str, value: str, remedy: str) -> None:
        super().__init__(remedy)
        self.name, self.value, self.remedy = name, value, remedy


@dataclass(frozen=True, slots=True)
class StateStore:
    """Redis or Valkey through which routers share state. `password_file` "": no password; `ca`:
    PEM, "" for the system's CAs.
    """

    url: str
    username: str = ""
    password_file: str = ""
    ca: str = field(default="", repr=False)


def read_state_store(env: Mapping[str, str]) -> StateStore | None:
    """Return the configured store, None if there is none. Raise StateStoreError."""
    url, username, password_file, ca_file = (env.get(name, "").strip() for name in NAMES)
    if not url:
        return None
    if "@" in url:
        remedy = f"remove user and password; set {NAMES[1]} and {_PASSWORD_FILE}"
        raise StateStoreError(_URL, "(hidden)", remedy)
    if not is_store_url(url):
        raise StateStoreError(_URL, url, _EXAMPLE)
    if ca_file and not url.startswith("rediss:"):
        raise StateStoreError(_CA_FILE, ca_file, f"remove it, or use rediss:// in {_URL}")
    _read(_PASSWORD_FILE, password_file)
    return StateStore(url, username, password_file, _read(_CA_FILE, ca_file))


def is_store_url(url: str) -> bool:
    """Return whether the URL, without credentials, is one of those that routers accept."""
    if _BLANK.search(url):
        return False
    try:
        parts = urlsplit(url)
        usable = bool(parts.scheme in _SCHEMES and parts.hostname and parts.port != 0)
    except ValueError:
        return False
    database = parts.path.strip("/") or "0"
    usable = usable and not (parts.query or parts.fragment)
    return usable and database.isdecimal() and int(database[:9]) <= _MAX_DATABASE


def _read(name: str, file: str) -> str:
    if not file:
        return ""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        remedy = f"the file cannot be read ({reason}); correct the path or its rights"
        raise StateStoreError(name, file, remedy) from error
