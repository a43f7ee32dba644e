"""Load generator against scripted workers: correct latencies and end conditions."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dashboards.benchmarks.generator.files import ABORTED, DONE, RUNNING, Task, pack, unpack
from dashboards.benchmarks.generator.job import parse_job
from dashboards.benchmarks.generator.player import Player, TierCounterReader
from tests.support.waiting import until


class Server:
    """Answers completions; `delay_s` before the first token, `script` instead of an answer."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        self.raw = b""
        self.bodies: list[Any] = []
        self.at_once = self.most_at_once = self.hung_up = 0
        self.one_at_a_time = False
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next(int(line[15:]) for line in head.split(b"\r\n") if b"ent-Length" in line)
                self.bodies.append(json.loads(await reader.readexactly(size)))
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
                try:
                    await self._answer(reader, writer, self.bodies[-1])
                finally:
                    self.at_once -= 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: Any, writer: asyncio.StreamWriter, body: Any) -> None:
        if self.raw:
            writer.write(self.raw)
            await writer.drain()
            raise ConnectionError
        waiting = asyncio.ensure_future(self._wait())
        gone = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            self.hung_up += 1
            raise ConnectionError
        gone.cancel()
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\nX-Emberline-Worker: w-0\r\n\r\n"
        )
        events = [{"choices": [{"delta": {"role": "assistant"}}]}]
        events += [{"choices": [{"delta": {"content": f" w{n}"}}]} for n in range(3)]
        details = {"cached_tokens": 40}
        usage = {"prompt_tokens": 100, "completion_tokens": 3, "prompt_tokens_details": details}
        events += [{"choices": [], "usage": usage}]
        for event in [*map(json.dumps, events), "[DONE]"]:
            data = f"data: {event}\n\n".encode()
            # In two pieces, as a network may bring it.
            writer.write(b"%x\r\n%b" % (len(data), data[:5]))
            await writer.drain()
            writer.write(data[5:] + b"\r\n")
        writer.write(b"0\r\n\r\n")

    async def _wait(self) -> None:
        if self.one_at_a_time:
            async with self._lock:
                await asyncio.sleep(self.delay_s)
        else:
            await asyncio.sleep(self.delay_s)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    await found.start()
    yield found
    found.server.close()


async def played(server: Server, **given: Any) -> tuple[dict[str, Any], Player]:
    received: list[dict[str, Any]] = []
    player = Player(Task(parse_job(given), server.url, "demo"), received.append)
    last = await player.play()
    assert received[-1] is last
    assert json.loads(json.dumps(last)) == last
    return last, player


async def test_conversation_includes_previous_responses(server: Server) -> None:
    last, player = await played(server, turns=3, think_s=0, max_requests=3, rate=50)
    assert last["state"] == DONE
    assert last["stopped_by"] == "max_requests"
    roles = [[m["role"] for m in body["messages"]] for body in server.bodies]
    assert roles[0] == ["system", "user"]
    longest = max(server.bodies, key=lambda body: len(body["messages"]))["messages"]
    assert [m["role"] for m in longest[:4]] == ["system", "user", "assistant", "user"]
    assert longest[2]["content"] == " w0 w1 w2"
    sample = player.samples[0]
    assert (sample.prompt_tokens, sample.completion_tokens, sample.cached_tokens) == (100, 3, 40)
    assert sample.worker == "w-0"
    assert 0 < sample.ttft_s <= sample.duration_s
    assert last["result"]["cached_share"] == 0.4
    assert unpack(pack(player.samples))[0].prompt_tokens == 100


async def test_completions_get_a_prompt(server: Server) -> None:
    await played(server, api="completions", workload="documents", max_requests=1, rate=50)
    assert server.bodies[0]["prompt"].startswith("Run warm. ")
    assert "messages" not in server.bodies[0]


async def test_slow_endpoint_gets_the_same_load_and_queueing_is_in_the_latency(
    server: Server,
) -> None:
    """Open loop: one at a time at 0.1 s, asked 40 times a second, must look far slower than 0.1 s.
    A generator that waited for its answers would see 0.1 s each."""
    server.delay_s, server.one_at_a_time = 0.1, True
    last, _ = await played(
        server, workload="documents", document_tokens=5, rate=40, max_requests=20, duration_s=30
    )
    assert last["result"]["requests"] == 20
    assert server.most_at_once > 8
    assert last["result"]["ttft"]["p90"] > 0.8


async def test_users_wait_for_their_responses(server: Server) -> None:
    server.delay_s = 0.02
    last, _ = await played(server, mode="concurrency", concurrency=3, think_s=0, max_requests=30)
    assert server.most_at_once == 3
    assert last["result"]["requests"] == 30


async def test_latency_counts_from_the_due_time(server: Server) -> None:
    """The loop is held up as a busy machine does: the wait is in the times, and it is named."""

    def hold() -> None:
        end = asyncio.get_running_loop().time() + 0.3
        until(lambda: asyncio.get_running_loop().time() > end)

    waiting = [hold]

    def begun(_seen: object) -> None:
        """Count from the first report: the start before the load may take any time."""
        if waiting:
            asyncio.get_running_loop().call_later(0.05, waiting.pop())

    player = Player(
        Task(
            parse_job(
                {"workload": "documents", "document_tokens": 5, "rate": 100, "max_requests": 30}
            ),
            server.url,
            "demo",
        ),
        begun,
    )
    last = await player.play()
    assert max(sample.lag_s for sample in player.samples) > 0.2
    assert max(sample.ttft_s or 0 for sample in player.samples) > 0.2
    assert last["generator"]["late"]


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"HTTP/1.1 503 No\r\nContent-Length: 28\r\n\r\n" + b'{"error": {"message": "full"}}'[:28],
         "http_503"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 9\r\n\r\nda",
         "broken"),
        (b"nonsense\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: [DONE]\n\n", "no_token"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
         b'data: {"choices":[{"text":"a"}]}\n\n', "broken"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
         b'data: {"error":{"message":"gone","code":"x"}}\n\n', "x"),
    ],
)  # fmt: skip
async def test_invalid_responses_are_counted_by_name_and_stop_the_run(
    server: Server, raw: bytes, code: str
) -> None:
    server.raw = raw
    last, _ = await played(server, rate=500, duration_s=20)
    assert last["stopped_by"] == "errors"
    assert last["result"]["requests"] == 0
    assert last["result"]["ttft"]["p50"] is None
    assert last["errors"][code] >= 20
    assert last["examples"][code]


async def test_unreachable_endpoint_is_named(server: Server) -> None:
    with socket.socket() as held:  # where nobody listens, and nobody else can
        held.bind(("127.0.0.1", 0))
        server.url = f"http://127.0.0.1:{held.getsockname()[1]}"
        last, _ = await played(server, rate=500, duration_s=20)
    assert set(last["errors"]) == {"connect"}


async def test_missing_response_times_out(server: Server) -> None:
    server.delay_s = 60
    last, _ = await played(server, rate=50, max_requests=1, request_s=1)
    assert last["errors"] == {"timeout": 1}
    until_hung_up = asyncio.get_running_loop().time() + 60
    while not server.hung_up and asyncio.get_running_loop().time() < until_hung_up:
        await asyncio.sleep(0)
    assert server.hung_up == 1


async def test_token_limit_ends_a_run(server: Server) -> None:
    last, _ = await played(server, rate=100, max_tokens=1000, duration_s=20, think_s=0)
    assert last["stopped_by"] == "max_tokens"
    assert 1000 <= last["tokens"] < 100_000  # without a limit it would be 206,000


async def test_time_limit_ends_a_run_after_pending_requests(server: Server) -> None:
    server.delay_s = 0.3
    last, _ = await played(server, workload="documents", rate=20, duration_s=1)
    assert last["stopped_by"] == "duration_s"
    assert last["errors"] == {}
    assert last["result"]["requests"] == last["sent"]


async def test_abort_closes_connections_at_once(server: Server) -> None:
    server.delay_s = 60
    player = Player(Task(parse_job({"rate": 50}), server.url, "demo"), lambda _seen: None)
    playing = asyncio.ensure_future(player.play())
    while server.at_once < 3:
        await asyncio.sleep(0.01)
    player.abort()
    last = await asyncio.wait_for(playing, 60)
    assert last["state"] == ABORTED
    assert last["in_flight"] == 0
    assert set(last["errors"]) == {"cut_at_the_end"}
    assert last["result"]["failed"] == 0
    while server.at_once:
        await asyncio.sleep(0.01)


async def test_abort_does_not_wait_for_responses(server: Server) -> None:
    server.delay_s = 60
    job = parse_job({"workload": "documents", "rate": 50, "max_requests": 3})
    player = Player(Task(job, server.url, "demo"), lambda _seen: None)
    playing = asyncio.ensure_future(player.play())
    while player.load.stopped_by != "max_requests":
        await asyncio.sleep(0.01)
    player.abort()
    assert (await asyncio.wait_for(playing, 60))["state"] == ABORTED


async def test_warm_up_is_sent_and_not_counted(server: Server) -> None:
    last, player = await played(
        server, workload="documents", rate=40, duration_s=2, warmup_s=1, max_requests=1000
    )
    counted = [s for s in player.samples if s.counted]
    assert 0 < len(counted) < len(player.samples)
    assert all(s.at >= 1 for s in counted)
    assert last["result"]["requests"] == len(counted)
    assert last["result"]["ttft"]["count"] == len(counted)


async def test_exceeded_concurrency_is_reported_and_not_delayed(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboards.benchmarks.generator.load.MAX_IN_FLIGHT", 5)
    server.delay_s = 0.5
    last, _ = await played(server, workload="documents", rate=100, duration_s=1)
    assert server.most_at_once <= 5
    assert last["not_sent"] > 20


async def test_progress_is_reported_during_the_run(server: Server) -> None:
    received: list[dict[str, Any]] = []

    def publish(seen: dict[str, Any]) -> None:
        received.append(seen)
        if seen["done"]:
            player.abort()

    job = parse_job({"workload": "documents", "rate": 50, "duration_s": 600})
    player = Player(Task(job, server.url, "demo"), publish)
    await player.play()
    first, *_, seen, _last = received
    assert (first["state"], seen["state"]) == (RUNNING, RUNNING)
    assert seen["done"] > 0
    assert seen["now"]["ttft"]["p50"] > 0
    assert sum(received[-1]["series"]["done"]) == received[-1]["result"]["requests"]


async def test_cpu_share_uses_the_same_start_for_work_and_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first poll of the workers costs CPU before the load begins."""
    poll = TierCounterReader.poll

    async def costly(watcher: TierCounterReader) -> dict[str, float]:
        until = time.process_time() + 0.1
        while time.process_time() < until:
            pass
        return await poll(watcher)

    monkeypatch.setattr(TierCounterReader, "poll", costly)
    received: list[dict[str, Any]] = []
    job = parse_job({"rate": 20, "max_requests": 3})
    await Player(Task(job, server.url, "demo"), received.append).play()
    assert received[0]["state"] == "running"
    shares = [one["generator"]["cpu_share"] for one in received]
    assert max(shares) < 2.0, "one thread, and the test's own"
    assert not received[0]["generator"]["busy"], "too short to judge"
