"""Trace context and spans: IDs first, then a router with a real OTLP receiver."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from routing.engine.config import ConfigError
from routing.engine.http.http1 import parse_request
from routing.engine.observe.tracing import Parent, begin_trace, parse_traceparent
from tests.routing.engine.access.test_admission_served import Gate, waiting
from tests.routing.engine.harness import ask, becomes, chat, metric, post, router, until
from tests.support.fake_worker import Conversation, FakeWorker

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED = f"00-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-00"
SPANS = "emberline_router_traced_requests_total"


class Receiver:
    """Takes OTLP over HTTP and keeps the spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.resources: list[dict[str, str]] = []
        self.messages = 0
        self.status = 200
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                assert head.startswith(b"post /v1/traces ")
                length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
                body = await reader.readexactly(length)
                self._take(body)
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % self.status)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    def _take(self, body: bytes) -> None:
        self.messages += 1
        if self.status != 200:
            return
        for part in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = {item.key: item.value.string_value for item in part.resource.attributes}
            self.resources.append(resource)
            for scope in part.scope_spans:
                self.spans += scope.spans

    def named(self, kind: int) -> list[Span]:
        return [span for span in self.spans if span.kind == kind]


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        server.close()


def attributes(span: Span) -> dict[str, Any]:
    return {
        item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes
    }


# -- ids


@pytest.mark.parametrize(
    "wrong",
    [
        "", "x", f"00-{TRACE}-{SPAN}", f"ff-{TRACE}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more",
        f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1", f" 00-{TRACE}-{SPAN}-01",
    ],
)  # fmt: skip
def test_invalid_trace_parents(wrong: str) -> None:
    assert parse_traceparent(wrong.encode()) is None


def test_trace_parent_of_current_and_later_versions() -> None:
    wanted = Parent(int(TRACE, 16), int(SPAN, 16), 1)
    assert parse_traceparent(SAMPLED.encode()) == wanted
    assert parse_traceparent(f"42-{TRACE}-{SPAN}-01-more".encode()) == wanted


def test_headers_of_a_traced_request() -> None:
    lines = f"host: a\r\nTraceParent: {SAMPLED}\r\ntracestate: v=1\r\nx-mine: 1\r\n"
    head = parse_request(f"GET /v1/x HTTP/1.1\r\n{lines}".encode())
    trace = begin_trace(head, 0.0)
    assert trace is not None
    fields = trace.attempt("w0")
    span = f"{trace.attempts[0].span_id:016x}"
    wanted = f"x-mine: 1\r\ntracestate: v=1\r\ntraceparent: 00-{TRACE}-{span}-01\r\n"
    assert fields.decode() == wanted
    assert span != SPAN


def test_duplicate_trace_parents_and_their_state_are_dropped() -> None:
    lines = f"host: a\r\ntraceparent: {SAMPLED}\r\ntraceparent: {SAMPLED}\r\ntracestate: v=1\r\n"
    head = parse_request(f"GET /v1/x HTTP/1.1\r\n{lines}".encode())
    assert begin_trace(head, 0.0) is None
    trace = begin_trace(head, 1.0)
    assert trace is not None
    assert trace.trace_id != int(TRACE, 16)
    assert b"tracestate" not in trace.attempt("w0")


# -- in a router


async def test_without_tracing_trace_headers_pass_unchanged() -> None:
    async with FakeWorker() as worker, router(worker) as server:
        for parent in (SAMPLED, "nonsense"):
            await ask(server, post(chat("hi"), traceparent=parent, tracestate="v=1,w=2"))
            seen = worker.requests[-1].headers
            assert (seen["traceparent"], seen["tracestate"]) == (parent, "v=1,w=2")
        await ask(server, post(chat("hi")))
        assert "traceparent" not in worker.requests[-1].headers


def test_without_tracing_its_packages_are_not_imported() -> None:
    code = (
        "import sys, routing.engine.__main__, routing.engine.server;"
        "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_a_request_is_a_server_span_with_its_attempt_below() -> None:
    async with FakeWorker() as worker, receiver() as collector:
        tracing = {"endpoint": collector.url, "sample": 0}
        async with router(worker, tracing=tracing, endpoint="demo", model="m") as server:
            request = chat("tell nobody", stream=True, stream_options={"include_usage": True})
            answer = await ask(server, post(request, traceparent=SAMPLED, tracestate="v=1"))
            await until(lambda: len(collector.spans) == 2, "spans")
            seen = worker.requests[0].headers
            (top,) = collector.named(Span.SPAN_KIND_SERVER)
            (attempt,) = collector.named(Span.SPAN_KIND_CLIENT)
            assert top.trace_id.hex() == attempt.trace_id.hex() == TRACE
            assert top.parent_span_id.hex() == SPAN
            assert attempt.parent_span_id == top.span_id
            assert seen["traceparent"] == f"00-{TRACE}-{attempt.span_id.hex()}-01"
            assert seen["tracestate"] == "v=1"
            assert top.name == "POST /v1/chat/completions"
            facts = attributes(top)
            assert facts["emberline.decision"] == answer.headers["x-emberline-decision"]
            assert facts["http.response.status_code"] == 200
            assert facts["gen_ai.usage.output_tokens"] == 3
            assert attributes(attempt)["emberline.worker"] == "w0"
            assert top.start_time_unix_nano <= attempt.start_time_unix_nano
            assert attempt.end_time_unix_nano <= top.end_time_unix_nano
            assert collector.resources[0]["service.name"] == "emberline-router"
            assert collector.resources[0]["emberline.endpoint"] == "demo"
            assert "tell nobody" not in str(collector.spans)
            await becomes(server, 1, SPANS, result="sent")


async def test_sampling_decision() -> None:
    async with FakeWorker() as worker, receiver() as collector:
        async with router(worker, tracing={"endpoint": collector.url, "sample": 1}) as server:
            await ask(server, post(chat("no"), traceparent=UNSAMPLED, tracestate="v=1"))
            seen = worker.requests[-1].headers
            assert (seen["traceparent"], seen["tracestate"]) == (UNSAMPLED, "v=1")
            await ask(server, post(chat("new")))
            assert worker.requests[-1].headers["traceparent"].endswith("-01")
            await until(lambda: len(collector.spans) == 2)
            (top,) = collector.named(Span.SPAN_KIND_SERVER)
            assert top.parent_span_id == b""
            assert top.trace_id.hex() in worker.requests[-1].headers["traceparent"]


async def test_attempts_and_waiting_are_spans() -> None:
    async with FakeWorker() as one, FakeWorker() as two, receiver() as collector:
        settings: dict[str, Any] = {
            "tracing": {"endpoint": collector.url, "sample": 1},
            "admission": {"max_in_flight": 1},
        }
        async with router(one, two, **settings) as server:
            gates = [Gate(one), Gate(two)]
            held = asyncio.create_task(ask(server, post(chat("one"))))
            await until(lambda: gates[0].inside or gates[1].inside)

            async def die(talk: Conversation) -> None:
                talk.cut()

            second = asyncio.create_task(ask(server, post(chat("two"))))
            await waiting(server, 1)
            free = two if gates[0].inside else one
            free.script = die
            for gate in gates:
                gate.let(2)
            assert [(await held).status, (await second).status] == [200, 200]
            await until(lambda: len(collector.named(Span.SPAN_KIND_SERVER)) == 2)
            (queue,) = collector.named(Span.SPAN_KIND_INTERNAL)
            assert queue.name == "queue"
            assert queue.end_time_unix_nano > queue.start_time_unix_nano
            mine = [
                span
                for span in collector.named(Span.SPAN_KIND_CLIENT)
                if span.parent_span_id == queue.parent_span_id
            ]
            if len(mine) == 2:  # it went to the one that is killed first
                first, last = sorted(mine, key=lambda span: span.start_time_unix_nano)
                assert attributes(first)["error.type"] == "upstream_reset"
                assert attributes(last)["http.request.resend_count"] == 1
                parents = {r.headers["traceparent"].split("-")[2] for r in free.requests}
                assert first.span_id.hex() in parents


async def test_a_retry_is_a_second_attempt() -> None:
    async with FakeWorker() as one, FakeWorker() as two, receiver() as collector:
        async with router(one, two, tracing={"endpoint": collector.url, "sample": 1}) as server:

            async def die(talk: Conversation) -> None:
                talk.cut()

            async def good(talk: Conversation) -> None:
                await talk.json({})

            async def first_dies(talk: Conversation) -> None:
                one.script = two.script = good
                await die(talk)

            one.script = two.script = first_dies
            assert (await ask(server, post(chat("hi")))).status == 200
            await until(lambda: len(collector.spans) == 3)
            first, last = sorted(
                collector.named(Span.SPAN_KIND_CLIENT), key=lambda span: span.start_time_unix_nano
            )
            assert attributes(first)["error.type"] == "upstream_reset"
            assert "error.type" not in attributes(last)
            assert attributes(last)["http.request.resend_count"] == 1
            assert attributes(first)["emberline.worker"] != attributes(last)["emberline.worker"]
            sent = [request.headers["traceparent"] for request in one.requests + two.requests]
            assert {line.split("-")[2] for line in sent} == {
                first.span_id.hex(),
                last.span_id.hex(),
            }


async def test_rejecting_collector_is_counted_and_logged_once(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeWorker() as worker, receiver() as collector:
        collector.status = 400
        async with router(worker, tracing={"endpoint": collector.url, "sample": 1}) as server:
            assert (await ask(server, post(chat("hi")))).status == 200
            await until(lambda: collector.messages)
            exporter = server.router.recorder._exporter
            assert exporter is not None
            await until(lambda: exporter.failing)
            await becomes(server, 1, SPANS, result="failed")
            for _ in range(3):
                server.router.recorder.tick()
            collector.status = 200
            assert (await ask(server, post(chat("hi")))).status == 200
            await until(lambda: not exporter.failing)
            server.router.recorder.tick()
    lines = [line for line in capfd.readouterr().err.splitlines() if "spans_not_sent" in line]
    assert len(lines) == 2, "once when it began, once when it was over"
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


async def test_reload_keeps_unchanged_parts(tmp_path: Path) -> None:
    path = tmp_path / "router.json"
    async with FakeWorker() as worker, receiver() as collector:
        tracing = {"endpoint": collector.url, "sample": 1}
        decisions = {"file": str(tmp_path / "decisions")}
        async with router(worker, path=path, tracing=tracing, decisions=decisions) as server:
            recorder = server.router.recorder
            before = (recorder._exporter, recorder._journal)
            server.reload(True)
            assert (recorder._exporter, recorder._journal) == before
            assert recorder._old == []


async def test_spans_are_dropped_before_requests(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr("routing.engine.observe.tracing.QUEUE_LIMIT", 2)
    async with FakeWorker() as worker, receiver() as collector:
        async with router(worker, tracing={"endpoint": collector.url, "sample": 1}) as server:
            for number in range(20):
                assert (await ask(server, post(chat(f"{number}")))).status == 200
            assert await metric(server, SPANS, result="dropped") >= 10


async def test_missing_packages_are_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    async with FakeWorker() as worker:
        with pytest.raises(ConfigError) as caught:
            async with router(worker, tracing={"endpoint": "http://127.0.0.1:4318"}):
                pass
    assert caught.value.field == "tracing"
    assert "emberline[tracing]" in caught.value.remedy


@pytest.mark.parametrize(
    ("tracing", "field"),
    [
        ({"endpoint": "collector:4318"}, "tracing.endpoint"),
        ({"endpoint": "http://user:secret@c:4318"}, "tracing.endpoint"),
        ({"endpoint": "http://c", "sample": 2}, "tracing.sample"),
        ({"url": "http://c"}, "tracing.url"),
    ],
)
async def test_invalid_tracing_settings_are_rejected(tracing: Any, field: str) -> None:
    async with FakeWorker() as worker:
        with pytest.raises(ConfigError) as caught:
            async with router(worker, tracing=tracing):
                pass
    assert caught.value.field == field
    assert "secret" not in str(caught.value)
