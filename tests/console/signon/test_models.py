"""Sessions: age, use, and no usable key in the row."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from console.accounts.models import User
from console.api.access import identify_sender
from console.people import actions, token_actions
from console.signon import factors
from console.signon.models import Session, SessionStore, digest, name_agent
from console.vault import encryption
from tests.console.signon.test_factors import SECRET
from tests.support.people import PASSWORD, Cast, client_of

pytestmark = pytest.mark.django_db


def logged_in(people: Cast, **headers: str) -> tuple[Client, Session]:
    client = Client(REMOTE_ADDR="10.0.0.4", headers={"User-Agent": "Firefox/1", **headers})
    client.post("/login/", {"username": "alice", "password": PASSWORD})
    return client, Session.objects.get(user=people.alice)


def inside(client: Client, **headers: str) -> bool:
    return client.get("/profile/", headers=headers).status_code == 200


def test_session_key_is_not_stored(people: Cast) -> None:
    client, row = logged_in(people)
    key = client.cookies[settings.SESSION_COOKIE_NAME].value
    assert row.session_key == digest(key) != key
    thief = Client()
    thief.cookies[settings.SESSION_COOKIE_NAME] = row.session_key
    assert not inside(thief)
    assert inside(client)


def test_row_states_user_address_and_method(people: Cast) -> None:
    _, row = logged_in(people)
    assert (row.address, row.agent, row.method) == ("10.0.0.4", "Firefox/1", "with a password")
    assert row.expire_date - row.created_at == timedelta(days=7)


def test_session_key_changes_at_the_login(people: Cast) -> None:
    client = Client()
    store = import_module(settings.SESSION_ENGINE).SessionStore()
    store["planted"] = 1
    store.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = store.session_key
    client.post("/login/", {"username": "alice", "password": PASSWORD})
    assert client.cookies[settings.SESSION_COOKIE_NAME].value != store.session_key
    assert not SessionStore().exists(store.session_key)


def test_use_does_not_extend_a_session_beyond_the_policy(people: Cast) -> None:
    client, row = logged_in(people)
    store = SessionStore(client.cookies[settings.SESSION_COOKIE_NAME].value)
    store["something"] = "new"
    store.save()
    assert Session.objects.get(pk=row.pk).expire_date == row.expire_date
    Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
    assert not inside(client)


def test_idle_session_ends(people: Cast, settings: Settings) -> None:
    client, _ = logged_in(people)
    settings.SIGNON = replace(settings.SIGNON, idle=timedelta(minutes=10))
    Session.objects.update(last_seen_at=timezone.now() - timedelta(minutes=9))
    assert inside(client)
    assert Session.objects.get().last_seen_at > timezone.now() - timedelta(minutes=1)
    Session.objects.update(last_seen_at=timezone.now() - timedelta(minutes=11))
    assert not inside(client)


def test_polling_does_not_count_as_use(people: Cast) -> None:
    client, _ = logged_in(people)
    before = timezone.now() - timedelta(minutes=9)
    Session.objects.update(last_seen_at=before)
    assert inside(client, **{"HX-Request": "true"})
    assert inside(client, Accept="text/event-stream")
    assert Session.objects.get().last_seen_at == before
    # What a person sends through htmx is.
    client.post("/profile/", headers={"HX-Request": "true"})
    assert Session.objects.get().last_seen_at > before


def test_login_deletes_expired_sessions(people: Cast) -> None:
    old = SessionStore()
    old.create()
    Session.objects.update(expire_date=timezone.now() - timedelta(days=1))
    logged_in(people)
    assert not SessionStore().exists(old.session_key)


@pytest.mark.asyncio
@pytest.mark.django_db(transaction=True)
async def test_asynchronous_views_use_the_same_session(people: Cast) -> None:
    store = SessionStore()
    store["a"] = 1
    await store.asave()
    assert store.session_key is not None
    assert await store.aexists(store.session_key)
    again = SessionStore(store.session_key)
    assert await again.aget("a") == 1
    await again.adelete()
    assert await SessionStore(store.session_key).aget("a") is None


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("Mozilla/5.0 (X11; Linux x86_64; rv:144.0) Firefox/144.0", "Firefox on Linux"),
        (
            "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15"
            " (KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1",
            "Safari on iPhone",
        ),
        (
            "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko)"
            " Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0",
            "Edge on Windows",
        ),
        ("curl/8.5.0", "curl"),
        ("", "unknown browser"),
    ],
)
def test_user_agents_have_readable_names(agent: str, name: str) -> None:
    assert name_agent(agent) == name


def test_sender_of_a_body_is_known_before_it_is_read(
    people: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The connection is the test's own here, in its transaction.
    monkeypatch.setattr("console.api.access.close_old_connections", lambda: None)

    def origin(path: str = "/x/", **headers: str) -> str:
        listed = [(name.encode(), value.encode()) for name, value in headers.items()]
        return identify_sender({"type": "http", "method": "POST", "path": path, "headers": listed})

    client, _ = logged_in(people)
    cookie = f"{settings.SESSION_COOKIE_NAME}={client.cookies[settings.SESSION_COOKIE_NAME].value}"
    bearer = f"Bearer {token_actions.create_token(people.alice, 'ci', 'viewer')[1]}"
    alice = f"user {people.alice.pk}"
    assert origin(cookie=cookie) == alice
    assert origin("/api/v1/tokens/", authorization=bearer) == alice
    assert origin(authorization=bearer) == "", "tokens are for the API"
    assert origin("/api/v1/tokens/", authorization="Bearer emb_x", cookie=cookie) == ""
    assert origin() == origin(cookie=f"{settings.SESSION_COOKIE_NAME}=x") == ""
    actions.set_active(people.ada, people.alice, False)
    assert origin(cookie=cookie) == origin("/api/v1/tokens/", authorization=bearer) == ""


@pytest.fixture
def before_allauth(transactional_db: None) -> Iterator[Any]:
    """Return the models before factors moved; the test's end migrates forwards again."""
    executor = MigrationExecutor(connection)
    latest = executor.loader.graph.leaf_nodes()
    old = [("signon", "0002_sign_on_and_factors")]
    executor.migrate(old)
    yield MigrationExecutor(connection).loader.project_state(old).apps
    MigrationExecutor(connection).migrate(latest)


def test_factors_of_an_earlier_version_keep_working(before_allauth: Any) -> None:
    alice, charlie = (User.objects.create_user(name, password="x") for name in ("alice", "charlie"))
    rows = before_allauth.get_model("signon", "Factor").objects
    purpose = f"signon/factor/{alice.pk}"
    used = int(time.time()) // 30
    rows.create(
        user_id=alice.pk,
        secret=encryption.seal(SECRET, purpose),
        recovery=encryption.seal(json.dumps(["abcde-fghij", "klmnp-qrstu"]), purpose),
        recovery_left=2,
        last_step=used,
    )
    rows.create(user_id=charlie.pk, secret="unreadable", recovery="unreadable", recovery_left=1)
    MigrationExecutor(connection).migrate([("signon", "0003_factors_to_allauth")])
    assert factors.use_code(alice, factors.current_code(SECRET, used)) is None, "already used"
    assert factors.use_code(alice, factors.current_code(SECRET, used + 1))
    assert factors.use_code(alice, "ABCDE fghij")
    assert factors.use_code(alice, "abcde-fghij") is None
    assert factors.use_code(alice, "klmnp-qrstu")
    assert factors.is_on(charlie)
    assert factors.use_code(charlie, factors.current_code(SECRET)) is None
    client = client_of(alice)
    assert "0 unused codes left" in client.get("/profile/security/").content.decode()
    client.post("/profile/security/recovery/new/")
    assert "10 unused codes left" in client.get("/profile/security/").content.decode()
