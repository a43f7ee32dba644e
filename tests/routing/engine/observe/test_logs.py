"""Log lines on stderr: complete for an active reader, non-blocking for a stalled one."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from routing.engine.config import AccessLogConfig, ConfigError, parse
from routing.engine.observe.logs import Log
from tests.routing.engine.harness import ask, chat, metric, post, router
from tests.support.fake_worker import FakeWorker

DROPPED = "emberline_router_log_lines_dropped_total"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    for fd in (reader, writer):
        with contextlib.suppress(OSError):
            os.close(fd)


def drain(reader: int) -> bytes:
    os.set_blocking(reader, False)
    data = b""
    try:
        while piece := os.read(reader, 1 << 20):
            data += piece
    except BlockingIOError:
        pass
    return data


def test_lines_are_complete_and_ordered(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log("info", writer)
    log.later("request", {"n": 0})
    log.later("request", {"n": 1, "long": "x" * 10_000})
    assert drain(reader) == b"", "access lines wait for their batch"
    log.event("info", "happened", n=2)
    log.event("debug", "never")
    lines = [json.loads(line) for line in drain(reader).splitlines()]
    assert [line["n"] for line in lines] == [0, 1, 2]
    assert [line["event"] for line in lines] == ["request", "request", "happened"]


def test_stalled_reader_costs_lines_but_no_time(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log("info", writer)
    fact = {"text": "x" * 500}
    for _ in range(5000):  # 2.5 MB into a pipe of 64 KiB without a reader: this must return
        log.later("request", fact)
    log.event("warning", "important", text="x" * 2000)
    dropped = log.dropped["access"]
    assert dropped > 1000
    assert log.dropped["event"] == 0, "access lines leave room for events"
    data = b""
    while piece := drain(reader):
        data += piece
        log.flush()
    lines = [json.loads(line) for line in data.splitlines()]
    events = [line["event"] for line in lines]
    assert events.count("request") == 5000 - dropped
    assert events[-2:] == ["important", "log_lines_dropped"]
    assert lines[-1]["lines"] == dropped
    log.event("info", "again")
    assert json.loads(drain(reader))["event"] == "again"


def test_events_are_bounded_too(pipe: tuple[int, int]) -> None:
    log = Log("info", pipe[1])
    for _ in range(4000):
        log.event("info", "event", text="x" * 500)
    assert log.dropped["event"] > 1000
    assert log._bytes < 1_200_000


def test_a_closed_pipe_is_counted_and_nothing_else(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.close(reader)
    log = Log("info", writer)
    log.event("info", "unheard")
    assert log.dropped["event"] == 1
    log.close()


def test_last_flush_waits_briefly_for_its_reader(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    log = Log("info", writer)
    for _ in range(300):
        log.later("request", {"text": "x" * 500})
    log.close(timeout_s=0.0)
    first = drain(reader)
    log.close(timeout_s=0.0)
    rest = drain(reader)
    while more := drain(reader):
        rest += more
    log.close(timeout_s=0.0)
    rest += drain(reader)
    assert (first + rest).count(b"\n") == 300


def test_log_file_is_written_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    log = Log("info", fd)
    for _ in range(1000):
        log.later("request", {"text": "x" * 500})
    log.flush()
    os.close(fd)
    assert path.read_bytes().count(b"\n") == 1000


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("off", (0, False)), (False, (0, False)), ("errors", (0, True)), ("all", (1, True)),
        ("sample=0.25", (0.25, True)), ({"sample": 0.5}, (0.5, True)), ({}, (0.01, True)),
        ({"sample": 0, "errors": False}, (0, False)),
    ],
)  # fmt: skip
def test_log_destinations(value: object, wanted: tuple[float, bool]) -> None:
    config = parse({"listen": "127.0.0.1:1", "access_log": value}, Path())
    assert config.access_log == AccessLogConfig(*wanted)


@pytest.mark.parametrize("value", ["some", "sample=2", "sample=x", "all=1", "sample", 5])
def test_unknown_destinations_are_rejected(value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({"listen": "127.0.0.1:1", "access_log": value}, Path())
    assert caught.value.field == "access_log"


@pytest.mark.parametrize(("how", "lines"), [("off", 0), ("errors", 1), ("all", 2)])
async def test_access_lines_follow_the_configuration(
    capfd: pytest.CaptureFixture[str], how: str, lines: int
) -> None:
    async with FakeWorker() as worker, router(worker, access_log=how) as server:
        await ask(server, post(chat("good")))
        await worker.stop()
        await ask(server, post(chat("bad")))
        server.log.flush()
    found = [
        json.loads(line)
        for line in capfd.readouterr().err.splitlines()
        if line.startswith("{") and json.loads(line)["event"] == "request"
    ]
    assert len(found) == lines, found


async def test_dropped_lines_are_a_metric(pipe: tuple[int, int]) -> None:
    async with FakeWorker() as worker, router(worker) as server:
        assert await metric(server, DROPPED, kind="access") == 0
        server.log._fd = pipe[1]
        for _ in range(3000):
            server.log.later("request", {"text": "x" * 500})
        assert await metric(server, DROPPED, kind="access") > 0
        assert (await ask(server, post(chat("still served")))).status == 200
