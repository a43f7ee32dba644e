"""Router program: command line, shutdown and imports."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from routing.engine import exchange
from routing.engine.config import Address, parse_address
from routing.engine.router import RENEW_PAUSE_S
from tests.routing.engine.harness import Client, chat, metric, post, router, until
from tests.support.fake_worker import Conversation, FakeWorker, event

COMMAND = [sys.executable, "-m", "routing.engine"]


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    async def line(self, wanted: str) -> dict[str, Any]:
        """The next log line of this event."""
        assert self.process.stderr is not None
        async with asyncio.timeout(60):
            while raw := await self.process.stderr.readline():
                self.lines.append(json.loads(raw))
                if self.lines[-1]["event"] == wanted:
                    return self.lines[-1]
        raise AssertionError(f"no {wanted} in {self.lines}")


@asynccontextmanager
async def program(*arguments: str) -> AsyncIterator[tuple[Process, Address]]:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stderr=asyncio.subprocess.PIPE
    )
    running = Process(process)
    try:
        address = (await running.line("listening"))["address"]
        yield running, parse_address("", address)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "127.0.0.1:0", "--strategy", "fastest"), ("fastest", "prefixaware")),
        (("--listen", "127.0.0.1:0", "--kv-events", "a=b"), ("--kv-events", "URL=ENDPOINT")),
        (("--listen", "127.0.0.1:0", "--kv-replay", "a=b"), ("--kv-replay",)),
        (("--listen", "127.0.0.1:0", "--tokenizer", "x"), ("kv.tokenizer", "does not exist")),
        (("--worker", "http://h:1"), ("--listen", "127.0.0.1:9000")),
        (("--listen", "nowhere"), ("nowhere", "HOST:PORT")),
        (("--listen", "127.0.0.1:0", "--worker", "h"), ("workers[0].url", "http://")),
        (("--listen", "127.0.0.1:0", "--api-keys", "absent.json"), ("absent.json",)),
        (("--config", "absent.json"), ("absent.json",)),
        (("--config", "x.json", "--listen", "127.0.0.1:0"), ("--listen", "--config")),
        (("--listen", "203.0.113.1:1"), ("203.0.113.1:1", "Choose another")),
    ],
)
def test_start_errors_name_value_and_remedy(arguments: tuple[str, ...], words: tuple[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr


def test_engine_imports_no_django() -> None:
    code = (
        "import sys\n"
        "for name in ('django', 'celery', 'kubernetes', 'httpx', 'yaml'):\n"
        "    sys.modules[name] = None\n"
        "import routing.engine.__main__\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_full_collections_are_rare_while_requests_are_served() -> None:
    code = (
        "import gc, routing.engine.__main__ as main\n"
        "async def serve(source, log): print(*gc.get_threshold(), gc.get_freeze_count() > 0)\n"
        "main._serve = serve\n"
        "main._run(None, None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=120, capture_output=True, text=True
    )
    assert done.stdout.split() == ["700", "1", "250", "True"]


async def test_router_states_whether_it_is_compiled() -> None:
    compiled = not (exchange.__file__ or "").endswith(".py")
    async with program("--listen", "127.0.0.1:0") as (running, _):
        assert running.lines[-1]["compiled"] is compiled
    async with router() as server:
        label = "yes" if compiled else "no"
        assert await metric(server, "emberline_router_build_info", compiled=label) == 1


async def refused(address: Address) -> None:
    """Connect until refused: the port closes a moment after the idle connections."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with await Client.to(address):
                    await asyncio.sleep(0.002)
            except ConnectionRefusedError:
                return
            except ConnectionError:  # queued when the port closed
                continue


async def test_flags_configure_and_term_completes_a_stream() -> None:
    step = asyncio.Event()

    async def stream(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await step.wait()
        await talk.chunk(event("two"))
        await talk.stream_end()

    go_on = asyncio.Event()

    async def late(talk: Conversation) -> None:
        await go_on.wait()
        await talk.json({})

    async with FakeWorker() as worker:
        arguments = ("--listen", "127.0.0.1:0", "--worker", worker.url, "--model", "m")
        async with program(*arguments) as (running, address):
            await running.line("worker_up")
            worker.script = stream
            async with (
                await Client.to(address) as busy,
                await Client.to(address) as idle,
                await Client.to(address) as waiting,
            ):
                await busy.send(post(chat("x", stream=True)))
                await busy.head()
                await busy.reader.readuntil(b"\n\n\r\n")
                worker.script = late
                await waiting.send(post(chat("x")))
                await worker.until(lambda: len(worker.requests) == 2)
                running.process.send_signal(signal.SIGTERM)
                await running.line("stopping")
                assert await idle.closed(), "an idle connection ends at once"
                await refused(address)
                worker.script = None
                go_on.set()
                answer = await waiting.response()
                assert (answer.status, answer.headers["connection"]) == (200, "close")
                assert await waiting.closed()
                step.set()
                async with asyncio.timeout(60):
                    rest = await busy.reader.read(-1)
                assert event("two") in rest
                assert rest.endswith(b"0\r\n\r\n")
            async with asyncio.timeout(60):
                assert await running.process.wait() == 0


async def test_requests_beyond_the_grace_period_are_cut(tmp_path: Path) -> None:
    async def endless(talk: Conversation) -> None:
        if talk.request.json.get("stream"):
            await talk.stream_head()
            await talk.chunk(event("one"))
        await asyncio.Event().wait()

    async with FakeWorker() as worker:
        config = tmp_path / "r.json"
        config.write_text(
            json.dumps(
                {
                    "listen": "127.0.0.1:0",
                    "workers": [{"id": "w0", "url": worker.url}],
                    "limits": {"shutdown_grace_s": 0.2},
                }
            )
        )
        async with program("--config", str(config)) as (running, address):
            await running.line("worker_up")
            worker.script = endless
            async with await Client.to(address) as client, await Client.to(address) as other:
                await client.send(post(chat("x", stream=True)))
                await client.head()
                await other.send(post(chat("x")))
                await worker.until(lambda: len(worker.requests) == 2)
                running.process.send_signal(signal.SIGTERM)
                stopped = await running.line("stopped")
                assert stopped["cut"] == 2
                rest = await client.reader.read(-1)
                assert b'data: {"error":' in rest
                assert b'"shutting_down"' in rest
                assert not rest.endswith(b"0\r\n\r\n"), "it does not look complete"
                answer = await other.response()
                assert (answer.status, answer.code) == (503, "shutting_down")
                async with asyncio.timeout(60):
                    assert await running.process.wait() == 0
            await worker.until(lambda: len(worker.cancelled) == 2)


async def test_hup_reloads_the_file(tmp_path: Path) -> None:
    config = tmp_path / "r.yaml"
    config.write_text("listen: 127.0.0.1:0\nworkers: []\n")
    async with program("--config", str(config)) as (running, _):
        running.process.send_signal(signal.SIGHUP)
        assert (await running.line("config_loaded"))["workers"] == 0
        config.write_text("listen: 127.0.0.1:0\nworkers: 5\n")
        assert (await running.line("config_refused"))["field"] == "workers"
        assert running.process.returncode is None


async def test_new_key_is_valid_as_soon_as_it_is_written(tmp_path: Path) -> None:
    """Not only at the next tick: who creates a key uses it at once."""
    config, keys = tmp_path / "r.json", tmp_path / "keys.json"

    def write(name: str) -> None:
        entry = {"id": name, "sha256": hashlib.sha256(name.encode()).hexdigest()}
        (tmp_path / "new").write_text(json.dumps({"keys": [entry]}))
        (tmp_path / "new").replace(keys)

    write("first")
    data = {"listen": "127.0.0.1:0", "workers": [], "api_keys_file": "keys.json"}
    config.write_text(json.dumps(data))
    async with program("--config", str(config)) as (_, address):

        async def status(key: str) -> int:
            async with await Client.to(address) as client:
                await client.send(post(b"", "/v1/models", authorization=f"Bearer {key}"))
                return (await client.response()).status

        for name in ("first", "second", "third", "fourth"):
            write(name)
            assert await status(name) != 401, name
            assert await status("wrong") == 401
            await asyncio.sleep(2 * RENEW_PAUSE_S)  # a guess may have used up the next look


async def test_duplicate_port_is_a_clear_error() -> None:
    async with program("--listen", "127.0.0.1:0") as (_, address):
        done = await asyncio.to_thread(run, "--listen", str(address))
        assert done.returncode == 2
        assert str(address) in done.stderr


async def test_restart_after_kill_serves_again() -> None:
    """Nothing is kept on disk: a restarted router needs only its configuration."""
    async with FakeWorker() as worker:
        arguments = ("--listen", "127.0.0.1:0", "--worker", worker.url)
        async with program(*arguments) as (running, address):
            await running.line("worker_up")
            os.kill(running.process.pid, signal.SIGKILL)
            await running.process.wait()
        again = ("--listen", str(address), "--worker", worker.url)
        async with program(*again) as (running, _):
            await running.line("worker_up")
            async with await Client.to(address) as client:
                await client.send(post(chat("x")))
                assert (await client.response()).status == 200
        await until(lambda: len(worker.requests) == 1)


def test_check_prints_the_configuration_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2" * 5)
    config = tmp_path / "r.json"
    data = {"listen": ["127.0.0.1:1", "[::1]:1"], "hash_key_file": "secret", "workers": []}
    config.write_text(json.dumps(data))
    done = run("--check", "--config", str(config))
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["listen"] == ["127.0.0.1:1", "[::1]:1"]
    assert shown["strategy"] == "prefixaware"
    assert "hunter2" not in done.stdout + done.stderr
    config.write_text(json.dumps({**data, "model": 5}))
    done = run("--check", "--config", str(config))
    assert (done.returncode, done.stdout) == (2, "")
    assert "model" in done.stderr
    done = run("--check", "--listen", "[::]:9000", "--worker", "https://[::1]:1")
    assert json.loads(done.stdout)["workers"][0]["url"] == "https://[::1]:1"


def test_version() -> None:
    done = run("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("emberline ")


async def test_files_named_by_flags_are_watched(tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text('{"keys": []}')
    async with program("--listen", "127.0.0.1:0", "--api-keys", str(keys)) as (running, _):
        keys.write_text('{"keys": 5}')
        assert (await running.line("config_refused"))["field"] == "api_keys_file.keys"
        keys.write_text('{"keys": [ ]}')
        await running.line("config_loaded")


async def test_second_stop_signal_ends_at_once() -> None:
    async def endless(talk: Conversation) -> None:
        await talk.stream_head()
        await talk.chunk(event("one"))
        await asyncio.Event().wait()

    async with FakeWorker() as worker:
        arguments = ("--listen", "127.0.0.1:0", "--worker", worker.url)
        async with program(*arguments, "--shutdown-grace", "600") as (running, address):
            await running.line("worker_up")
            worker.script = endless
            async with await Client.to(address) as client:
                await client.send(post(chat("x", stream=True)))
                await client.head()
                running.process.send_signal(signal.SIGTERM)
                await running.line("stopping")
                running.process.send_signal(signal.SIGTERM)
                stopped = await running.line("stopped")
                assert (stopped["cut"], stopped["hurried"]) == (1, True)
                async with asyncio.timeout(60):
                    assert await running.process.wait() == 0


async def test_stopping_router_serves_while_unready() -> None:
    """Load balancers notice a drain late: until then no request is rejected."""
    async with FakeWorker() as worker:
        arguments = ("--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--worker", worker.url)
        async with program(*arguments, "--shutdown-delay", "600") as (running, address):
            admin = parse_address("", running.lines[-1]["admin"])
            await running.line("worker_up")
            running.process.send_signal(signal.SIGTERM)
            assert (await running.line("stopping"))["delay_s"] == 600
            async with await Client.to(address) as client:
                await client.send(post(chat("x")))
                assert (await client.response()).status == 200
            async with await Client.to(admin) as client:
                await client.send(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n")
                assert (await client.response()).status == 503
            running.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                assert await running.process.wait() == 0


async def test_settings_that_need_a_restart_are_named(tmp_path: Path) -> None:
    config = tmp_path / "r.json"
    config.write_text('{"listen": "127.0.0.1:0", "model": "a"}')
    async with program("--config", str(config)) as (running, _):
        config.write_text('{"listen": "127.0.0.1:1", "endpoint": "other", "model": "b"}')
        line = await running.line("config_needs_restart")
        assert line["fields"] == ["listen", "endpoint"]
        await running.line("config_loaded")


async def test_routers_of_one_address_lose_no_request_when_one_stops() -> None:
    def request() -> socket.socket:
        """Send before any router could accept: the request waits in the queue of one."""
        client = socket.create_connection((first.listen.host, first.listen.port))
        client.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
        client.setblocking(False)
        return client

    loop = asyncio.get_running_loop()
    async with FakeWorker() as worker:
        async with router(worker, reuse_port=True) as first:
            async with router(worker, listen=str(first.listen), reuse_port=True) as second:
                requests = [request() for _ in range(40)]
                await second.close()
                for client in requests:
                    assert b" 200 " in await loop.sock_recv(client, 4096)
                    client.close()
                with request() as client:
                    assert b" 200 " in await loop.sock_recv(client, 4096)
