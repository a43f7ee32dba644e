"""Database connections, and what an error means: unavailable, a conflict, or a bug."""

from __future__ import annotations

from django.db import IntegrityError, InterfaceError, OperationalError, connections
from django.db.models import ProtectedError

# SQLite result codes; the low byte is the primary code (sqlite.org/rescode.html).
_SQLITE = {5: "locked", 6: "locked", 8: "read_only", 10: "io", 13: "full", 14: "unreachable"}
# PostgreSQL SQLSTATE classes and codes; connection errors have none.
_POSTGRESQL = {
    "40001": "locked", "40P01": "locked", "55P03": "locked", "25006": "read_only",
    "53100": "full", "57014": "timeout", "58030": "io",
}  # fmt: skip
# Violated unique and foreign keys: SQLite's extended codes, PostgreSQL's SQLSTATE.
_CONFLICTS = (787, 1555, 2067, "23503", "23505")


def database_unavailable(error: BaseException | None) -> str:
    """Return the reason if the database is unavailable, "" for other errors."""
    if not isinstance(error, (OperationalError, InterfaceError)):
        return ""
    cause = error.__cause__
    sqlite: int | None = getattr(cause, "sqlite_errorcode", None)
    if sqlite is not None:  # a missing table is an OperationalError too, but a bug
        return _SQLITE.get(sqlite & 0xFF, "")
    if type(cause).__module__.partition(".")[0] == "sqlite3":
        return ""
    return _POSTGRESQL.get(str(getattr(cause, "sqlstate", "") or ""), "unreachable")


def is_conflict(error: BaseException | None) -> bool:
    """Return whether a concurrent request took a name first or deleted what this one refers to."""
    if isinstance(error, ProtectedError):
        return True
    cause = error.__cause__ if isinstance(error, IntegrityError) else None
    codes = (getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None))
    return any(code in _CONFLICTS for code in codes)


def release_connections() -> None:
    """Close this thread's connections as at the end of a request, except in a transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
