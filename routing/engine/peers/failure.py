"""Failures of the state store by reason, each with its remedy. Pure."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from routing.engine.peers.connection import NO_HANDSHAKE, NO_REPLY, StoreError

REMEDIES: Final = {
    "address": "Check host and port in state_store.url, the name's resolution, and network "
    "policies.",
    "timeout": "Check that the store is not overloaded, and that firewalls and network policies "
    "let the router through.",
    "certificate": "Set state_store.ca to the CA that signed the store's certificate, and use a "
    "name of that certificate in state_store.url.",
    "tls": "Use rediss:// where the store serves TLS on this port, otherwise redis://. A TLS port "
    "that does not respond may be overloaded. Client certificates are not supported.",
    "auth": "Set state_store.username and password_file to a user of the store.",
    "permission": "Grant the user the commands and channels that the documentation of several "
    "routers lists.",
    "database": "Use a database number that the store has in state_store.url; in a cluster, 0.",
    "protocol": "Use Valkey, or Redis 6 or newer.",
    "internal": "Report the error; the router reconnects by itself.",
    "lost": "Check that the store runs and has memory; the router reconnects by itself.",
}
_REPLIES = (
    ("NOPERM", "permission"),
    ("NOAUTH", "auth"),
    ("WRONGPASS", "auth"),
    ("ERR AUTH", "auth"),
    ("ERR invalid password", "auth"),
    ("ERR Client sent AUTH", "auth"),
    ("ERR wrong number of arguments for 'auth'", "auth"),
    ("ERR DB index", "database"),
    ("ERR SELECT", "database"),
    ("NOPROTO", "protocol"),
    (NO_REPLY, "tls"),
    (NO_HANDSHAKE, "tls"),
    ("ERR unknown command", "protocol"),
)


@dataclass(frozen=True, slots=True)
class StoreFailure:
    """Failure of the state store. `reason` is a metric label."""

    reason: str
    error: str

    @property
    def remedy(self) -> str:
        return REMEDIES[self.reason]


def describe_failure(error: Exception, password: str = "") -> StoreFailure:
    """Return why the store is away. The error text never contains the password."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    if password:
        text = text.replace(password, "***")
    return StoreFailure(_reason(error), text[:200])


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "certificate"
    if isinstance(error, ssl.SSLError):
        return "tls"
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, StoreError):
        text = str(error)
        return next((reason for start, reason in _REPLIES if text.startswith(start)), "lost")
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return "lost"
    return "address" if isinstance(error, OSError) else "internal"
