"""Access and timeout settings of a node: flags, and connections past a timeout.

Contradictory flags are rejected by name. A stalled client pins the memory of a partial value.
Timeouts are polled, so they are accurate to the polling interval.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from cachetier.engine.errors import ConfigError
from cachetier.engine.net.tls import LiveContext, TlsFiles

DEFAULT_USER = "default"
_MAX_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Guards:
    """Access and timeout settings. `users` may log in with the node's password; `tls` None means
    plain connections.

    Seconds, 0 = off: `login_timeout_s` from connect to login (Redis has none), `stall_timeout_s`
    without progress within a request or reply (such a client pins memory), `idle_timeout_s`
    between requests (off as in Redis: pools keep connections). `login_failures` is the number of
    wrong passwords per address and minute; further ones are delayed and disconnected.
    """

    users: tuple[str, ...] = (DEFAULT_USER,)
    tls: TlsFiles | None = None
    admin_plain: bool = False
    unprotected: bool = False
    login_timeout_s: float = 10.0
    stall_timeout_s: float = 60.0
    idle_timeout_s: float = 0.0
    login_failures: int = 20

    @property
    def asks_for_certificates(self) -> bool:
        return self.tls is not None and self.tls.client_ca is not None


def add_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    standard = Guards()
    add("--user", default="", metavar="NAME", help="user name for login, instead of `default`")
    add("--keep-default-user", action="store_true", help="`default` may log in besides --user")
    add(
        "--tls-cert",
        default="",
        metavar="FILE",
        help="certificate chain, PEM; enables TLS and disables plain connections",
    )
    add("--tls-key", default="", metavar="FILE", help="its key, PEM, without a password")
    add(
        "--tls-client-ca",
        default="",
        metavar="FILE",
        help="CA for client certificates, which become mandatory",
    )
    add("--admin-plain", action="store_true", help="no TLS on the admin port")
    add(
        "--unprotected",
        action="store_true",
        help="accept connections from other machines without a password",
    )
    for name, default, text in (
        ("login", standard.login_timeout_s, "to log in"),
        ("stall", standard.stall_timeout_s, "without a byte in the middle of something"),
        ("idle", standard.idle_timeout_s, "idle time between requests, 0 for no limit"),
    ):
        more = f"a client has {text}, default %(default)s"
        add(f"--{name}-timeout", type=float, default=default, metavar="SECONDS", help=more)
    add(
        "--login-failures",
        type=int,
        default=standard.login_failures,
        metavar="NUMBER",
        help="failed logins per address and minute before delays and disconnects, "
        "default %(default)s",
    )


def read_flags(args: argparse.Namespace, *, has_password: bool) -> Guards:
    """Read the flags; raise ConfigError."""
    guards = Guards(
        users=_read_users(args, has_password),
        tls=_read_tls(args),
        admin_plain=args.admin_plain,
        unprotected=args.unprotected,
        login_timeout_s=_read_seconds(args, "login"),
        stall_timeout_s=_read_seconds(args, "stall"),
        idle_timeout_s=_read_seconds(args, "idle"),
        login_failures=args.login_failures,
    )
    if guards.login_failures < 1:
        raise ConfigError(
            f"--login-failures {guards.login_failures} would block every login: at least 1"
        )
    if guards.admin_plain and guards.tls is None:
        raise ConfigError("--admin-plain requires --tls-cert: remove it")
    return guards


def _read_users(args: argparse.Namespace, has_password: bool) -> tuple[str, ...]:
    name = args.user
    if not name:
        if args.keep_default_user:
            raise ConfigError("--keep-default-user requires --user: remove it")
        return (DEFAULT_USER,)
    if not has_password:
        raise ConfigError(f"--user {name} needs a password: give --password-file")
    if not name.isascii() or not name.isprintable() or " " in name or len(name) > 64:
        raise ConfigError(f"--user {name!r} must be up to 64 printable letters without spaces")
    if name == DEFAULT_USER or not args.keep_default_user:
        return (name,)
    return (name, DEFAULT_USER)


def _read_tls(args: argparse.Namespace) -> TlsFiles | None:
    cert, key, client_ca = args.tls_cert, args.tls_key, args.tls_client_ca
    if not cert and not key and not client_ca:
        return None
    if not cert or not key:
        missing = "--tls-key" if cert else "--tls-cert"
        raise ConfigError(f"{missing} is missing: set certificate and key, or neither")
    files = TlsFiles(Path(cert), Path(key), Path(client_ca) if client_ca else None)
    LiveContext(files)  # reports unusable files at startup
    return files


def _read_seconds(args: argparse.Namespace, name: str) -> float:
    value = float(getattr(args, f"{name}_timeout"))
    if not 0 <= value <= _MAX_SECONDS:
        raise ConfigError(f"--{name}-timeout {value:g} must be 0 to {_MAX_SECONDS:g} seconds")
    return value


LOGIN = "login_timeout"
STALLED = "stalled"
IDLE = "idle_timeout"


class TimedSession(Protocol):
    """Session state read by the timeouts. Times are on the monotonic clock."""

    logged_in: bool
    born_at: float
    moved_at: float
    seen_progress: tuple[int, int]

    def progress(self) -> tuple[int, int]: ...

    def is_between_requests(self) -> bool: ...


class OpenSession(TimedSession, Protocol):
    """Session as registered on the node, for CLIENT LIST, CLIENT KILL and the sweep."""

    id: int
    user: str
    name: str
    peer: str
    local: str
    library: dict[str, str]
    version: int
    last_command: str
    active_at: float
    closing: bool
    hang_up: Callable[[], None]


def find_timeout(session: TimedSession, guards: Guards, now: float) -> str:
    """Return the reason to close the session, "" if none. Tracks progress between calls."""
    progress = session.progress()
    if progress != session.seen_progress:
        session.seen_progress = progress
        session.moved_at = now
    if not session.logged_in and _has_passed(guards.login_timeout_s, session.born_at, now):
        return LOGIN
    if session.is_between_requests():
        return IDLE if _has_passed(guards.idle_timeout_s, session.moved_at, now) else ""
    return STALLED if _has_passed(guards.stall_timeout_s, session.moved_at, now) else ""


def _has_passed(limit_s: float, since: float, now: float) -> bool:
    return limit_s > 0 and now - since > limit_s
