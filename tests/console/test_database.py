"""Database errors of SQLite and PostgreSQL."""

from __future__ import annotations

import sqlite3

import psycopg
import pytest
from django.db import IntegrityError, InterfaceError, OperationalError
from django.db.models import ProtectedError
from django.db.utils import ConnectionHandler

from console.database import database_unavailable, is_conflict
from tests.support.ports import free_port


def _caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


def _sqlite(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("x")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (_caused(OperationalError(), _sqlite(sqlite3.SQLITE_BUSY)), "locked"),
        (_caused(OperationalError(), _sqlite(sqlite3.SQLITE_BUSY_SNAPSHOT)), "locked"),
        (_caused(OperationalError(), _sqlite(sqlite3.SQLITE_LOCKED_SHAREDCACHE)), "locked"),
        (_caused(OperationalError(), _sqlite(sqlite3.SQLITE_CANTOPEN)), "unreachable"),
        (_caused(OperationalError(), _sqlite(sqlite3.SQLITE_FULL)), "full"),
        (_caused(OperationalError(), _sqlite(sqlite3.SQLITE_READONLY)), "read_only"),
        (_caused(OperationalError(), _sqlite(sqlite3.SQLITE_IOERR_WRITE)), "io"),
        (_caused(OperationalError(), _sqlite(sqlite3.SQLITE_ERROR)), ""),  # no such table
        (_caused(OperationalError(), psycopg.OperationalError("gone")), "unreachable"),
        (_caused(OperationalError(), psycopg.errors.AdminShutdown()), "unreachable"),
        (_caused(OperationalError(), psycopg.errors.DeadlockDetected()), "locked"),
        (_caused(OperationalError(), psycopg.errors.LockNotAvailable()), "locked"),
        (_caused(OperationalError(), psycopg.errors.DiskFull()), "full"),
        (_caused(InterfaceError(), psycopg.InterfaceError("closed")), "unreachable"),
        (ValueError(), ""),
        (None, ""),
    ],
)
def test_reasons(error: BaseException | None, reason: str) -> None:
    assert database_unavailable(error) == reason


@pytest.mark.parametrize(
    ("error", "conflict"),
    [
        (_caused(IntegrityError(), _sqlite(sqlite3.SQLITE_CONSTRAINT_UNIQUE)), True),
        (_caused(IntegrityError(), _sqlite(sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY)), True),
        (_caused(IntegrityError(), _sqlite(sqlite3.SQLITE_CONSTRAINT_NOTNULL)), False),
        (_caused(IntegrityError(), psycopg.errors.UniqueViolation()), True),
        (_caused(IntegrityError(), psycopg.errors.ForeignKeyViolation()), True),
        (_caused(IntegrityError(), psycopg.errors.NotNullViolation()), False),
        (ProtectedError("a team with endpoints", set()), True),
        (ValueError(), False),
    ],
)
def test_concurrent_changes_are_conflicts(error: Exception, conflict: bool) -> None:
    assert is_conflict(error) == conflict


def test_unreachable_postgresql() -> None:
    databases = ConnectionHandler(
        {
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": "127.0.0.1",
                "PORT": free_port(),
                "NAME": "x",
            }
        }
    )
    away = databases["default"]
    with pytest.raises(OperationalError) as caught, away.wrap_database_errors:
        away.connect()
    assert database_unavailable(caught.value) == "unreachable"
