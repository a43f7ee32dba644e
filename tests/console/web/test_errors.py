"""Errors of the database and of the host name, with their reasons, on pages and REST."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from console.core import counters
from console.people import token_actions
from console.web import errors
from console.web.errors import RETRY_AFTER_S
from dashboards.costs.models import Budget
from tests.support.database_template import sqlite_only
from tests.support.people import PASSWORD, cast


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


def test_unknown_host_names_the_setting(settings: Any, caplog: pytest.LogCaptureFixture) -> None:
    settings.ALLOWED_HOSTS = ["console.example.org"]
    client = Client(headers={"Host": "<b>.example.org"})
    page = client.get("/login/").content.decode()
    assert "not configured for the host name &lt;b&gt;.example.org" in page
    answer = client.get("/api/v1/me/")
    assert (answer.status_code, answer.json()["code"]) == (400, "unknown_host")
    assert "EMBERLINE_ALLOWED_HOSTS" in answer.json()["remedy"]
    assert [record.exc_info for record in caplog.records] == [None, None]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("headers", "secure_cookies", "code", "text"),
    [
        ({"Origin": "https://testserver"}, False, "unknown_origin", "EMBERLINE_HTTPS=1"),
        ({"Origin": "http://evil.example"}, False, "unknown_origin", "http://evil.example"),
        ({"Origin": "http://testserver"}, True, "not_secure", "X-Forwarded-Proto"),
        ({}, False, "no_cookie", "Allow cookies"),
        ({"Cookie": "{cookie}={token}"}, False, "csrf_failed", "in another tab"),
    ],
)
def test_rejected_form_tells_why(
    settings: Any, headers: dict[str, str], secure_cookies: bool, code: str, text: str
) -> None:
    settings.CSRF_COOKIE_SECURE = secure_cookies
    cookie = {"cookie": settings.CSRF_COOKIE_NAME, "token": "a" * 32}
    sent = {name: value.format(**cookie) for name, value in headers.items()}
    answer = Client(enforce_csrf_checks=True).post("/login/", {"username": "x"}, headers=sent)
    assert answer.status_code == 403
    assert text in answer.content.decode()
    assert errors.TITLES[code] in answer.content.decode()


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
