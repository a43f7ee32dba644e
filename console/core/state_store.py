"""State store of the installation, through which the routers of an endpoint exchange state.

Used by endpoints of the console's own cluster, unless they have a store of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

_URL = "EMBERLINE_STATE_STORE_URL"
_PASSWORD_FILE = "EMBERLINE_STATE_STORE_PASSWORD_FILE"  # noqa: S105
_CA_FILE = "EMBERLINE_STATE_STORE_CA_FILE"
NAMES = (_URL, "EMBERLINE_STATE_STORE_USER", _PASSWORD_FILE, _CA_FILE)
_EXAMPLE = "write redis://HOST:6379/0, or rediss:// for TLS"


class StateStoreError(ValueError):
    """Invalid setting; `value` contains no secret."""

    def __init__(self, name: str, value: str, remedy: str) -> None:
        super().__init__(remedy)
        self.name, self.value, self.remedy = name, value, remedy


@dataclass(frozen=True, slots=True)
class StateStore:
    """`password_file` "": no password; `ca`: PEM, "" for the system's CAs."""

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
    try:
        parts = urlsplit(url)
        usable = bool(parts.scheme in ("redis", "rediss") and parts.hostname and parts.port != 0)
        usable = usable and not parts.query and (parts.path.strip("/") or "0").isdecimal()
    except ValueError:
        usable = False
    if not usable:
        raise StateStoreError(_URL, url, _EXAMPLE)
    if ca_file and parts.scheme != "rediss":
        raise StateStoreError(_CA_FILE, ca_file, f"remove it, or use rediss:// in {_URL}")
    _read(_PASSWORD_FILE, password_file)
    return StateStore(url, username, password_file, _read(_CA_FILE, ca_file))


def _read(name: str, file: str) -> str:
    if not file:
        return ""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        remedy = f"the file cannot be read ({reason}); correct the path or its rights"
        raise StateStoreError(name, file, remedy) from error
