"""Locked or unavailable database: 503 with a reason on pages and REST."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, connection
from django.db.models import ProtectedError
from django.db.utils import ConnectionHandler
from django.test import Client

from console.core import counters
from console.people import token_actions
from console.web.errors import RETRY_AFTER_S, database_unavailable, is_conflict
from dashboards.costs.models import Budget
from tests.support.database_template import sqlite_only
from tests.support.people import PASSWORD, cast
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


@pytest.mark.django_db
def test_name_taken_by_a_concurrent_request_is_a_409(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other request has created its row since this one looked for it."""
    clear = token_actions.create_token(cast().ada, "ci", "admin")[1]
    Budget.objects.create(name="November", usd=1)
    monkeypatch.setattr(Budget, "validate_unique", lambda *_, **__: None)
    monkeypatch.setattr(Budget, "validate_constraints", lambda *_, **__: None)
    answer = Client(raise_request_exception=False).post(
        "/api/v1/budgets/",
        {"name": "November", "usd": 2},
        content_type="application/json",
        headers={"Authorization": f"Bearer {clear}"},
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


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


@pytest.fixture
def locked(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real writer holds the database; an operator's token."""
    if connection.vendor != "sqlite":
        pytest.skip("PostgreSQL has no lock of the whole database")
    clear = token_actions.create_token(cast().alice, "ci", "operator")[1]
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0)
    connection.close()
    with closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield clear
    connection.close()  # and its timeout of nothing


def test_page_and_api_report_it(locked: str) -> None:
    client = Client(raise_request_exception=False)
    before = counters.total("database_unavailable", reason="locked")
    page = client.post("/login/", {"username": "alice", "password": PASSWORD})
    assert (page.status_code, page["Retry-After"]) == (503, str(RETRY_AFTER_S))
    assert "locked by another writer" in page.content.decode()
    headers, made = {"authorization": f"Bearer {locked}"}, {"name": "a", "role": "viewer"}
    answer = client.post("/api/v1/tokens/", made, "application/json", headers=headers)
    assert (answer.status_code, answer["Retry-After"]) == (503, str(RETRY_AFTER_S))
    assert answer.json()["code"] == "database_unavailable"
    assert "Retry in" in answer.json()["remedy"]
    assert counters.total("database_unavailable", reason="locked") == before + 2


def test_readiness_fails_while_the_database_is_locked(locked: str) -> None:
    assert locked
    answer = Client().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["database"] == "failed: OperationalError"


@sqlite_only
@pytest.mark.django_db(transaction=True)
def test_readiness_fails_where_the_database_cannot_be_written() -> None:
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA query_only = ON")
        try:
            answer = Client().get("/readyz")
        finally:
            cursor.execute("PRAGMA query_only = OFF")
    assert answer.json()["checks"]["database"] == "failed: OperationalError"
    assert Client().get("/readyz").json()["checks"]["database"] == "ok"


def test_programming_error_is_a_crash(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing_table(*_: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM there_is_no_such_table")

    monkeypatch.setattr("console.signon.login_limits.count_attempt", missing_table)
    client = Client(raise_request_exception=False)
    assert client.post("/login/", {"username": "a", "password": "b"}).status_code == 500
