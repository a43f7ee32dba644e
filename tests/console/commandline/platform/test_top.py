"""`emberline top`: frames from the REST API, for scripts and on a terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from console.client import Client
from console.commandline import context, parser
from console.commandline.platform import top
from dashboards.boards.panels import BOARDS
from tests.console.commandline.test_parser import refused, run
from tests.support.console import make_endpoint
from tests.support.http_stub import Stub, http_stub

WORKER = {
    "id": "chat-worker-0", "url": "", "state": "up", "in_flight": 3, "in_flight_tokens": 1200,
    "served": 10, "failures": 1, "last_error": "",
}  # fmt: skip
ENDPOINTS = [
    {
        "name": "chat",
        "phase": "Ready",
        "ready_replicas": 2,
        "wanted_replicas": 2,
        "url": "http://r",
    },
    {"name": "idle", "phase": "Paused", "ready_replicas": 0, "wanted_replicas": 0, "url": ""},
]


def board(**lines: float) -> tuple[int, Any]:
    found = [{"name": name, "values": [None, value, None]} for name, value in lines.items()]
    return 200, {"fault": None, "panels": [{"lines": found}]}


@pytest.fixture
def console() -> Iterator[Stub]:
    def boards(path: str, _body: bytes) -> tuple[int, Any]:
        return {
            "requests": board(chat=4.25),
            "reuse": board(chat=0.714),
            "waiting": board(chat=2),
            "ttft": board(p50=0.1, p90=0.2104, p99=1),
        }[re.findall("panel=([a-z]+)", path)[0]]

    answers: dict[str, Any] = {
        "/api/v1/endpoints/": (200, ENDPOINTS),
        "/api/v1/endpoints/chat/": (200, ENDPOINTS[0]),
        "/api/v1/endpoints/chat/routing/": (200, {"workers": [WORKER]}),
        "/api/v1/boards/overview/": boards,
    }
    with http_stub(answers) as stub:
        yield stub


def remote(stub: Stub, *words: str) -> str:
    out, err = io.StringIO(), io.StringIO()
    options = vars(parser.build_parser().parse_args(list(words)))
    return context.run(options, lambda: Client(stub.url), out, err).text


def test_single_frame_for_scripts(console: Stub) -> None:
    text = remote(console, "top", "--once")
    assert "\x1b" not in text
    assert "Endpoints Ready 1/2  Workers ready 2/2  Requests/s 4.2  In flight 3  Queued 2" in text
    chat = next(line for line in text.splitlines() if line.startswith("chat "))
    assert re.split(r"\s{2,}", chat) == [
        *("chat", "Ready", "2/2", "4.2", "210 ms", "71 %", "3", "2")
    ]
    assert "1,200" in text and "chat-worker-0" in text
    found = json.loads(remote(console, "top", "chat", "-o", "json"))
    (row,) = found["endpoints"]
    assert (row["ttft_p90_s"], row["hit_rate"], row["workers"][0]["state"]) == (0.2104, 0.714, "up")


def test_workers_are_listed_without_metrics(console: Stub) -> None:
    fault = {"title": "Prometheus is unreachable.", "text": "Connection refused."}
    console.answers["/api/v1/boards/overview/"] = (200, {"fault": fault, "panels": []})
    text = remote(console, "top", "--once")
    assert "Metrics unavailable: Prometheus is unreachable. Connection refused." in text
    assert "chat-worker-0" in text


def test_live_view_redraws_and_q_quits(console: Stub) -> None:
    keys, terminal = pty.openpty()
    words = [sys.executable, "-m", "console.cli", "top", "--interval", "1"]
    env = {**os.environ, "EMBERLINE_URL": console.url, "EMBERLINE_TOKEN": "t", "NO_COLOR": ""}
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), terminal)
    process = subprocess.Popen(words, env={**env, "TERM": "xterm"}, **streams)
    os.close(terminal)
    seen, end = b"", time.monotonic() + 60
    try:
        while seen.count(b"\x1b[2J") < 2 and time.monotonic() < end:
            if select.select([keys], [], [], 0.2)[0]:
                seen += os.read(keys, 65536)
        os.write(keys, b"q")
        while time.monotonic() < end:
            try:
                seen += os.read(keys, 65536)
            except OSError:  # the program ended
                break
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        os.close(keys)
    assert seen.count(b"\x1b[2J") >= 2, "drawn again"
    assert b"\x1b[32mReady\x1b[0m" in seen
    assert seen.rstrip().endswith(b"\x1b[?1049l"), "the terminal is restored"


def test_frame_is_cut_to_the_terminal() -> None:
    size = os.terminal_size((10, 3))
    text = "\n".join(["ENDPOINT  PHASE", "chat  Ready", "idle  Paused", "x"])
    assert top.paint(text, size, colors=False).splitlines() == [
        *("ENDPOINT  ", "chat  Read", "… 2 more l")
    ]
    wide = top.paint("up  Ready\nx  down  1", os.terminal_size((80, 9)), colors=True)
    assert wide == "up  \x1b[32mReady\x1b[0m\nx  \x1b[31mdown\x1b[0m  1"


def test_requests_per_second_are_the_growth_between_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 104.0, 108.0])
    monkeypatch.setattr(top.time, "monotonic", lambda: next(now))
    collector: Any = top.Collector(None)  # type: ignore[arg-type]
    assert collector._rate({"id": "w", "served": 10}) is None
    assert collector._rate({"id": "w", "served": 18}) == 2.0
    assert collector._rate({"id": "w", "served": 3}) is None, "a restarted router counts anew"


def test_used_panels_exist() -> None:
    overview = BOARDS["overview"]
    assert {one.id for one in overview.panels(one=False)} >= set(top._FLEET_PANELS.values())
    assert top._TTFT in {one.id for one in overview.panels(one=True)}


@pytest.mark.django_db
def test_local_console_and_invalid_input() -> None:
    assert "No endpoints." in run("top", "--once")
    make_endpoint()
    assert "Pending" in run("top", "demo", "--once")
    assert refused("top", "nope", "--once")[0] == 4
    code, content = refused("top", "--interval", "0")
    assert (code, "1 to 3600 seconds" in content) == (2, True)
