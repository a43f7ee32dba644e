"""CPU time and Python frames of the router's own code, in one process without sockets.

    .venv/bin/python -m bench.router_path [--frames] [--checkout DIR ...] [--only request,event]
                                          [--workers 8 1000]

Requests and answers as `bench.rig` and `bench/native/load.c` send them are handed to the protocols
of `routing.engine` over transports that discard what is written. Checkouts are measured in turn,
each in a process of its own. The lowest round is shown, since other load only adds.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from math import inf
from pathlib import Path
from time import perf_counter, process_time
from types import FrameType
from typing import Any

from bench.rig import KEY, requests
from routing.engine.client_connection import ClientConnection
from routing.engine.config import parse
from routing.engine.fleet import connection_pool
from routing.engine.fleet.worker_connection import WorkerConnection
from routing.engine.observe.logs import Log
from routing.engine.request_path import RequestPath
from routing.engine.router import Router

_HEAD = b"HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 07:00:00 GMT\r\nserver: uvicorn\r\n"
_STREAM = _HEAD + b"content-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}\n\n'
)
_CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
_EVENTS = 100
_ROUND_S = 0.25
_ROUNDS = 8
_GROUPS = 64
# name: prompt bytes, requests are new each time, reported cached tokens of 1000, stream, strategy
# ("/": and that of a canary with half of the sessions)
WORKS: dict[str, tuple[int, bool, int, bool, str]] = {
    "request": (4096, True, 768, False, "prefixaware"),
    "hit": (4096, False, 992, False, "prefixaware"),
    "unreported": (4096, True, -1, False, "prefixaware"),
    "long": (131_072, True, 768, False, "prefixaware"),
    "plain": (4096, True, 768, False, "roundrobin"),
    "event": (1024, True, 768, True, "prefixaware"),
    "session": (4096, True, 768, False, "session"),
    "canary": (4096, True, 768, False, "prefixaware/session"),
}


class DiscardingTransport:
    """Transport that drops what is written."""

    def write(self, _data: bytes) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, _name: str) -> None:
        return None

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    resume_reading = abort = close = pause_reading


class WorkerTransport(DiscardingTransport):
    """Notes the connection that a request is sent on."""

    def __init__(self, path: RouterPath, connection: WorkerConnection) -> None:
        self._path = path
        self._connection = connection

    def write(self, _data: bytes) -> None:
        self._path.busy = self._connection


def _plain_answer(cached: int) -> bytes:
    usage: dict[str, Any] = {"prompt_tokens": 1000, "completion_tokens": 24, "total_tokens": 1024}
    if cached >= 0:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    message = {"role": "assistant", "content": "ok " * 40}
    answer = {"id": "c", "choices": [{"index": 0, "message": message}], "usage": usage}
    body = json.dumps(answer, separators=(",", ":")).encode()
    head = b"content-length: %d\r\ncontent-type: application/json\r\n\r\n" % len(body)
    return _HEAD + head + body


class RouterPath:
    """A router with workers and a client, connected by discarding transports."""

    busy: WorkerConnection

    def __init__(self, strategy: str, folder: Path, workers: int) -> None:
        keys = [{"id": "bench", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]
        (folder / "keys.json").write_text(json.dumps({"keys": keys}))
        settings = {
            "listen": "127.0.0.1:1",
            "model": "m",
            "strategy": strategy.partition("/")[0],
            "workers": [{"url": f"http://127.0.0.1:{port}"} for port in range(2, workers + 2)],
            "api_keys_file": str(folder / "keys.json"),
        }
        if candidate := strategy.partition("/")[2]:
            settings["canary"] = {"id": "bench", "strategy": candidate, "share": 0.5}
        self.router = Router(parse(settings, folder), Log("info", os.open(os.devnull, os.O_WRONLY)))
        self.client = ClientConnection(RequestPath(self.router))
        self.client.connection_made(DiscardingTransport())  # type: ignore[arg-type]
        for worker in self.router.table.workers.values():
            connection = WorkerConnection(worker.pool)
            transport = WorkerTransport(self, connection)
            connection.connection_made(transport)  # type: ignore[arg-type]
            worker.pool.give(connection)
            self.router.table.probed(worker, "", False, 3)
        self.router.table.tick(perf_counter())  # large fleets take up workers in ticks

    def request(self, wire: bytes) -> WorkerConnection:
        """Hand a request to the router; return the connection it was sent on."""
        for at in range(0, len(wire), 262_144):
            self.client.data_received(wire[at : at + 262_144])
        return self.busy


def _wires(
    prompt_bytes: int, is_new: bool, _cached: int, stream: bool, _strategy: str
) -> Callable[[], bytes]:
    groups = max(_GROUPS * 4096 // max(prompt_bytes, 4096), 8)
    made = [wire.split(b"0000000000", 1) for wire in requests(groups, prompt_bytes, stream)]
    count = 0

    def following() -> bytes:
        nonlocal count
        count += 1
        first, second = made[count % groups]
        return b"%b%010d%b" % (first, count if is_new else 0, second)

    return following


def _step(
    path: RouterPath, work: str, following: Callable[[], bytes]
) -> tuple[Callable[[], None], Callable[[], None], int]:
    """Return a measured unit of work, the same without the router, and its number of events."""
    _, _, cached, stream, _ = WORKS[work]
    answer = _plain_answer(cached)

    def plain() -> None:
        path.request(following()).data_received(answer)

    def streamed() -> None:
        connection = path.request(following())
        connection.data_received(_STREAM + _CHUNK)
        take = connection.data_received
        for _ in range(_EVENTS):
            take(_CHUNK)
        take(_END)

    def nothing() -> None:
        following()

    return (streamed, nothing, _EVENTS) if stream else (plain, nothing, 1)


def _cpu_us(step: Callable[[], None], count: int) -> float:
    began = process_time()
    for _ in range(count):
        step()
    return (process_time() - began) / count * 1e6


def _frames(step: Callable[[], None], units: int) -> None:
    """Print the Python functions and built-ins called per unit."""
    calls: Counter[str] = Counter()

    def profile(frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event == "call" and "/bench/" not in code.co_filename:
            calls[f"{Path(code.co_filename).name}:{code.co_qualname}"] += 1
        elif event == "c_call" and "/bench/" not in code.co_filename:
            calls[f"    {arg.__qualname__}"] += 1

    sys.setprofile(profile)
    for _ in range(200):
        step()
    sys.setprofile(None)
    whole = 200 * units
    for kind in ("", "    "):
        chosen = {n: c for n, c in calls.items() if n.startswith("    ") == bool(kind)}
        print(f"{sum(chosen.values()) / whole:7.1f} {'built-ins' if kind else 'frames'}")
        for name, number in sorted(chosen.items(), key=lambda item: -item[1]):
            if number >= whole // 20:
                print(f"{number / whole:7.2f}   {name}")


def measure(work: str, frames: bool, workers: int) -> float:
    """Return the least CPU time of a unit in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        connection_pool.IDLE_S = inf  # no connection can be opened here
        following = _wires(*WORKS[work])
        path = RouterPath(WORKS[work][4], Path(folder), workers)
        step, nothing, units = _step(path, work, following)
        _cpu_us(step, max(200 // units, 4))
        if frames:
            _frames(step, units)
        gc.collect()
        count = max(int(_ROUND_S * 1e6 / _cpu_us(step, max(100 // units, 2))), 2)
        floor = min(_cpu_us(nothing, count) for _ in range(3))
        return (min(_cpu_us(step, count) for _ in range(_ROUNDS)) - floor) / units


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default=",".join(WORKS), help="some of: " + ", ".join(WORKS))
    parser.add_argument("--checkout", action="append", default=[], help="measure this one too")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each checkout")
    parser.add_argument("--frames", action="store_true", help="list calls per request or event")
    parser.add_argument("--workers", type=int, nargs="+", default=[2], help="size of the fleet")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    works = flags.only.split(",")
    if flags.child or flags.frames:
        for work in works:
            print(work, measure(work, flags.frames, flags.workers[0]), flush=True)
        return
    checkouts = [Path.cwd(), *(Path(one).resolve() for one in flags.checkout)]
    variants = [(checkout, workers) for checkout in checkouts for workers in flags.workers]
    least: dict[tuple[str, Path, int], float] = {}
    command = [sys.executable, __file__, "--child", "--workers"]
    for _ in range(flags.rounds):
        for work in works:
            for checkout, workers in variants:
                argv = [*command, str(workers), "--only", work]
                env = {**os.environ, "PYTHONPATH": str(checkout)}
                made = subprocess.run(argv, env=env, cwd=checkout, capture_output=True, check=True)
                value = float(made.stdout.split()[-1])
                key = (work, checkout, workers)
                least[key] = min(least.get(key, value), value)
    print(f"{'CPU (us)':12}" + "".join(f"{f'{one.name} {n}':>16}" for one, n in variants))
    for work in works:
        print(f"{work:12}" + "".join(f"{least[work, *one]:16.2f}" for one in variants))


if __name__ == "__main__":
    main()
