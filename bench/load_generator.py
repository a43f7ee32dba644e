"""Capacity of one load generator, and its own share in the measurements.

    python -m bench.load_generator [--seconds 6]

A server that computes nothing (bare protocol, separate process) answers each chat request after a
fixed time with a fixed number of tokens. For each offered rate: requests sent, delay (p99), the
generator's CPU a request and share of its core, and the TTFT in excess of the server's time. The
table includes rates beyond its capacity, where it must report "late". On a busy machine only CPU a
request is reliable.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
from typing import Any, cast

from dashboards.benchmarks.generator.files import Task
from dashboards.benchmarks.generator.job import parse_job
from dashboards.benchmarks.generator.player import Player

try:
    from uvloop import run as run_loop
except ImportError:  # the generator works without it too
    from asyncio import run as run_loop

DELAY_S = 0.05
TOKENS = 16
RATES = (50, 200, 500, 1000, 1500, 2000)
_EVENT = b'data: {"choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
_USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":250,"completion_tokens":16}}\n\n'


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_REST = _chunk(_EVENT) * (TOKENS - 1) + _chunk(_USAGE) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class _Answering(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.rest = b""
        self.loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        self.rest += data
        end = self.rest.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self.rest.lower().find(b"content-length:")
        size = int(self.rest[at + 15 : self.rest.find(b"\r\n", at)])
        if len(self.rest) >= end + 4 + size:
            self.rest = b""
            self.loop.call_later(DELAY_S, self._answer)

    def _answer(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(_HEAD + _chunk(_EVENT) + _REST)


def _serve(port: Any) -> None:
    async def run() -> None:
        server = await asyncio.get_running_loop().create_server(_Answering, "127.0.0.1", 0)
        port.value = server.sockets[0].getsockname()[1]
        await server.serve_forever()

    run_loop(run())


async def _one(url: str, rate: float, seconds: float) -> dict[str, Any]:
    job = parse_job(
        {
            "workload": "documents",
            "rate": rate,
            "duration_s": seconds,
            "document_tokens": 220,
            "max_requests": 50_000,
            "max_tokens": 500_000_000,
        }
    )
    return await Player(Task(job, url, "m"), lambda _seen: None).play()


def line(rate: float, seconds: float, seen: dict[str, Any]) -> str:
    found, own = seen["result"], seen["generator"]
    over = [1000 * ((found["ttft"][p] or found["ttft"]["max"]) - DELAY_S) for p in ("p50", "p99")]
    flags = " ".join(word for word in ("late", "busy") if own[word])
    cost = 1e6 * own["cpu_share"] * seen["elapsed_s"] / max(1, seen["sent"])
    late = 1000 * (found["lag"]["p99"] or found["lag"]["max"])
    return (
        f"{rate:9}  {seen['sent'] / seconds:7.1f}  {late:7.1f} ms  {cost:8.0f} us  "
        f"{own['cpu_share']:5.0%}  {over[0]:6.2f} ms  {over[1]:7.2f} ms  {flags}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.load_generator")
    parser.add_argument("--seconds", type=float, default=6)
    given = parser.parse_args()
    port = multiprocessing.Value("i", 0)
    server = multiprocessing.Process(target=_serve, args=(port,), daemon=True)
    server.start()
    while not port.value and server.is_alive():
        server.join(0.05)
    url = f"http://127.0.0.1:{port.value}"
    print(f"first token after {DELAY_S * 1000:g} ms, {TOKENS} tokens, 1 KB prompts")
    print("                                                    first token, beyond the server's")
    print("offered/s   sent/s    late p99  CPU/request   core        p50         p99  says")
    for rate in RATES:
        print(line(rate, given.seconds, run_loop(_one(url, rate, given.seconds))), flush=True)
    server.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())
