"""Generated configuration of the embedded Valkey."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from console.core.state_store import read_state_store
from console.launcher import processes
from console.launcher.layout import Layout, write_facts
from console.launcher.processes import Services, console_environment, write_valkey_config
from console.launcher.tools import has_channel_rights
from routing.engine.config.schema import StateStoreConfig
from routing.engine.peers.connection import StoreConnection, StoreError
from tests.support.cachenode import Valkey
from tests.support.ports import free_port

ROUTERS = "secret-of-the_routers"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    found = Layout(tmp_path / "var")
    found.prepare()
    write_facts(found, valkey_port=free_port(), state_store=True)
    return found


def services(valkey: Path | None) -> Services:
    return Services("127.0.0.1", 8000, "simulated", valkey, None)


def test_embedded_valkey_is_the_state_store_unless_another_is_set(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    (layout.secrets / processes.STORE_PASSWORD).write_text(ROUTERS)
    found = read_state_store(console_environment(layout, services(Path("valkey-server"))))
    assert found is not None
    assert (found.username, Path(found.password_file).read_text()) == ("routers", ROUTERS)
    assert read_state_store(console_environment(layout, services(None))) is None
    write_facts(layout, state_store=False)  # too old for a user of its own
    assert read_state_store(console_environment(layout, services(Path("redis-server")))) is None
    write_facts(layout, state_store=True)
    monkeypatch.setenv("EMBERLINE_STATE_STORE_URL", "redis://store:6379/0")
    given = console_environment(layout, services(Path("valkey-server")))
    assert not [name for name in given if name.startswith("EMBERLINE_STATE_STORE")]


def test_routers_have_their_own_rights_in_the_embedded_valkey(
    layout: Layout, tmp_path: Path
) -> None:
    port = free_port()
    write_valkey_config(layout, port, "secret-of-the-broker", ROUTERS)

    class Embedded(Valkey):
        def _command(self) -> list[str]:
            return [*super()._command(), str(layout.secrets / "valkey.conf")]

    server = Embedded(tmp_path, port=port)

    async def attempt(left: int = 10) -> list[str]:
        store = StateStoreConfig("127.0.0.1", port, username="routers", password=ROUTERS)
        try:
            connection = await StoreConnection.to(store, lambda _channel, _data: None)
        except TimeoutError:  # a starved machine
            return await attempt(left - 1) if left else ["timeout"]
        await connection.command("SUBSCRIBE", "emberline:default/demo:routers")
        await connection.command("SET", "{emberline:default/demo:x", "1")
        refused = []
        for command in (("GET", "celery"), ("SUBSCRIBE", "celery"), ("KEYS", "*"), ("FLUSHALL",)):
            try:
                await connection.command(*command)
            except StoreError as error:
                refused.append(str(error).split()[0])
        connection.close()
        return refused

    try:
        assert asyncio.run(attempt()) == ["NOPERM"] * 4
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("redis_url", "able"),
    [
        ("Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1", False),
        ("Redis server v=6.2.0 sha=00000000:0", True),
        ("Valkey server v=8.0.1 sha=00000000:0", True),
        ("something else", False),
    ],
)
def test_older_servers_have_no_user_for_routers(
    layout: Layout, tmp_path: Path, redis_url: str, able: bool
) -> None:
    server = tmp_path / "redis-server"
    server.write_text(f"#!/bin/sh\necho '{redis_url}'\n")
    server.chmod(0o700)
    assert has_channel_rights(server) is able
    write_valkey_config(layout, 1, "secret-of-the-broker", "")
    assert "user " not in (layout.secrets / "valkey.conf").read_text()
