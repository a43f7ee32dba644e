"""A script that never ends is ended, with a real Valkey and the rights of routers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from console.broker_guard import BrokerGuard
from console.core import counters
from console.launcher.processes import STORE_RIGHTS
from tests.support.cachenode import Valkey
from tests.support.waiting import until

LOOP = "while true do end"
WRITING_LOOP = "redis.call('SET', KEYS[1], '1') while true do end"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Valkey]:
    running = Valkey(tmp_path, "--busy-reply-threshold", "100")
    client = redis.Redis.from_url(running.url)
    client.execute_command("ACL", "SETUSER", "routers", "on", ">x", *STORE_RIGHTS.split())
    yield running
    running.stop()


def busy(server: Valkey, script: str) -> threading.Thread:
    """Run a script as a router could, until the server says that it is busy."""
    store = redis.Redis.from_url(server.url, username="routers", password="x")
    name = store.script_load(script)

    def run() -> None:
        with pytest.raises(redis.RedisError):
            store.evalsha(name, 1, "{emberline:x}")

    thread = threading.Thread(target=run)
    thread.start()
    other = redis.Redis.from_url(server.url)

    def is_busy() -> bool:
        try:
            other.ping()
        except redis.ResponseError as error:
            return str(error).startswith("BUSY")
        return False

    until(is_busy)
    return thread


def test_endless_script_is_ended(server: Valkey) -> None:
    guard = BrokerGuard(server.url)
    assert guard.check() == "", "an idle broker is left alone"
    before = counters.total("broker_scripts_ended", how="killed")
    running = busy(server, LOOP)
    assert guard.check() == "killed"
    running.join(60)
    assert redis.Redis.from_url(server.url).ping()
    assert guard.check() == ""
    assert counters.total("broker_scripts_ended", how="killed") == before + 1


def test_script_that_has_written_ends_with_the_server(server: Valkey) -> None:
    """It cannot be killed; the process keeper starts the server again."""
    running = busy(server, WRITING_LOOP)
    assert BrokerGuard(server.url).check() == "restarted"
    running.join(60)
    until(lambda: server.process.poll() is not None)


def test_missing_broker_is_nothing_to_end(tmp_path: Path) -> None:
    assert BrokerGuard(f"unix://{tmp_path}/none.sock").check() == ""
