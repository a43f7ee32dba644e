"""Configuration of the store through which the routers of an endpoint exchange state."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from routing.engine.config.schema import LabelOrEmpty, StateStoreConfig
from routing.engine.config.validation import ConfigError, Section, between, read_file

# Where no file can be mounted; never in a command line, which other processes can read.
PASSWORD_ENV = "EMBERLINE_STATE_STORE_PASSWORD"  # noqa: S105
_EXAMPLE = "For example redis://10.0.0.5:6379/0, or rediss:// for TLS."
_MAX_DATABASE = 1023


class StateStoreFields(Section, frozen=True):
    url: str = ""
    username: LabelOrEmpty = ""
    password_file: str = ""
    ca: str = ""
    routers: Annotated[int, between(1, 64)] = 1


def parse_state_store(
    fields: StateStoreFields, hash_key: bytes, base_dir: Path
) -> tuple[StateStoreConfig | None, list[Path]]:
    """Return the store, None without a URL, and the files read. Raise ConfigError."""
    if not fields.url:
        return None, []
    if "@" in fields.url:  # credentials must not appear in error messages
        raise ConfigError(
            "state_store.url", "(hidden)", "holds a user or password", "Use password_file."
        )
    host, port, database, tls = _parse_url(fields.url)
    if not hash_key:
        raise ConfigError(
            "state_store.url",
            fields.url,
            "needs a hash key, the same at every router of the endpoint",
            "Set hash_key_file.",
        )
    files: list[Path] = []
    password = os.environ.get(PASSWORD_ENV, "")
    if fields.password_file:
        path, content = read_file("state_store.password_file", fields.password_file, base_dir)
        files.append(path)
        password = content.decode("utf-8", "replace").strip()
    ca: Path | None = None
    if fields.ca:
        ca, _ = read_file("state_store.ca", fields.ca, base_dir)
        files.append(ca)
        try:
            ssl.create_default_context(cafile=str(ca))
        except (ssl.SSLError, OSError):
            raise ConfigError(
                "state_store.ca", fields.ca, "holds no CA certificate", "Give certificates as PEM."
            ) from None
    store = StateStoreConfig(
        host, port, database, fields.username, password, tls, ca, fields.routers
    )
    return store, files


def _parse_url(url: str) -> tuple[str, int, int, bool]:
    try:
        parts = urlsplit(url)
        port = 6379 if parts.port is None else parts.port
        path = parts.path.strip("/")
        database = int(path) if path.isdecimal() and len(path) < 5 else 0 if not path else -1
        usable = parts.scheme in ("redis", "rediss") and bool(parts.hostname) and port > 0
        usable = usable and 0 <= database <= _MAX_DATABASE and not parts.query
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError("state_store.url", url, "is not the URL of a Valkey or Redis", _EXAMPLE)
    return parts.hostname or "", port, database, parts.scheme == "rediss"
