"""Causes of a state store that is away, from a real Redis with TLS and users."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from routing.engine.config.schema import StateStoreConfig
from routing.engine.peers.connection import NO_HANDSHAKE, StoreConnection, StoreError
from routing.engine.peers.failure import REMEDIES, describe_failure
from tests.routing.engine.harness import admin, metric, router, until
from tests.support.cachenode import Redis
from tests.support.certificates import authority, stranger
from tests.support.fake_worker import FakeWorker
from tests.support.ports import free_port

PASSWORD = "open sesame"
# As documented in docs/routing-scale.md.
RIGHTS = (
    "~{emberline:* &emberline:* +ping +select +publish +subscribe +evalsha +script|load +get +set "
    "+time"
)


@dataclass
class SecureStore:
    folder: Path
    plain: StateStoreConfig
    tls: StateStoreConfig


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureStore]:
    folder = tmp_path_factory.mktemp("store")
    cert, key = authority().write(folder, "localhost")
    ca = authority().write_ca(folder / "ca.pem")
    (folder / "users.acl").write_text(
        f"user default off\nuser router on >{PASSWORD.replace(' ', '_')} {RIGHTS}\n"
        f"user weak on >{PASSWORD.replace(' ', '_')} +ping\n"
    )
    (folder / "password").write_text(PASSWORD.replace(" ", "_"))
    (folder / "hash.key").write_text("h" * 32)
    secure = free_port()
    server = Redis(
        folder, "--tls-port", str(secure), "--tls-cert-file", str(cert), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(ca), "--tls-auth-clients", "no",
        "--aclfile", str(folder / "users.acl"),
    )  # fmt: skip
    plain = StateStoreConfig(
        "localhost", server.port, username="router", password=PASSWORD.replace(" ", "_")
    )
    yield SecureStore(folder, plain, replace(plain, port=secure, tls=True, ca=ca))
    server.stop()


def failure_of(config: StateStoreConfig) -> str:
    """Return the reason why a connection and a subscription fail, "" if they do not."""

    async def attempt(left: int = 10) -> str:
        connection = None
        try:
            connection = await StoreConnection.to(config, lambda _channel, _data: None)
            await connection.command("SUBSCRIBE", "emberline:a/b:routers")
        except TimeoutError:
            return await attempt(left - 1) if left else "timeout"  # a starved machine
        except (OSError, StoreError) as error:
            failure = describe_failure(error, config.password)
            assert failure.remedy
            assert not config.password or config.password not in failure.error
            return failure.reason
        finally:
            if connection is not None:
                connection.close()
        return ""

    return asyncio.run(attempt())


def test_user_with_the_documented_rights_connects_over_tls(store):
    assert failure_of(store.tls) == ""
    assert failure_of(store.plain) == ""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"password": "wrong"}, "auth"),
        ({"password": ""}, "auth"),
        ({"username": "absent"}, "auth"),
        ({"username": "weak"}, "permission"),
        ({"database": 99}, "database"),
        ({"ca": None}, "certificate"),
        ({"host": "127.0.0.1"}, "certificate"),  # not a name of the certificate
        ({"tls": False}, "tls"),
    ],
)
def test_cause_is_named(store, changes: dict[str, Any], reason):
    assert failure_of(replace(store.tls, **changes)) == reason


def test_certificate_of_a_stranger_is_rejected(store):
    ca = stranger().write_ca(store.folder / "stranger.pem")
    assert failure_of(replace(store.tls, ca=ca)) == "certificate"


def test_port_without_tls_is_named(store):
    """Redis waits for the end of the line that a TLS handshake seems to begin."""
    assert failure_of(replace(store.tls, port=store.plain.port)) == "tls"


def test_absent_store_is_named():
    assert failure_of(StateStoreConfig("127.0.0.1", free_port())) == "address"
    assert failure_of(StateStoreConfig("absent.invalid", 1)) == "address"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (StoreError("ERR unknown command 'HELLO', with args: 'AUTH' 'open sesame'"), "protocol"),
        (StoreError("NOPROTO unsupported protocol version"), "protocol"),
        (StoreError("connection closed"), "lost"),
        (TimeoutError(), "timeout"),
        (StoreError(NO_HANDSHAKE), "tls"),
        (ssl.SSLError("alert"), "tls"),
        (ConnectionResetError(), "lost"),
    ],
)
def test_other_causes(error, reason):
    found = describe_failure(error, PASSWORD)
    assert (found.reason, found.remedy) == (reason, REMEDIES[reason])
    assert PASSWORD not in found.error


async def test_router_uses_tls_and_a_user_and_names_a_failure(store, capsys):
    def settings(**changes: Any) -> dict[str, Any]:
        config = {
            "url": f"rediss://localhost:{store.tls.port}",
            "username": "router",
            "password_file": str(store.folder / "password"),
            "ca": str(store.tls.ca),
            **changes,
        }
        return {"state_store": config, "hash_key_file": str(store.folder / "hash.key")}

    async with FakeWorker() as worker:
        async with router(worker, **settings()) as server:
            await until(lambda: server._exchange.link.up, "connected")
        async with router(worker, **settings(username="weak")) as server:
            await until(lambda: server._exchange._failure, "failed")
            exchange = (await admin(server, "/peers")).json["exchange"]
            assert (exchange["reason"], exchange["connected"]) == ("permission", False)
            assert "Grant the user" in exchange["remedy"]
            name = "emberline_router_state_store_failures_total"
            assert await metric(server, name, reason="permission") == 1
            shown = f"{exchange}{(await admin(server, '/config')).body!r}{capsys.readouterr()}"
            assert PASSWORD.replace(" ", "_") not in shown
