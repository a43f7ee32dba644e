"""CPU time of the router for a request or a relayed event.

    .venv/bin/python -m bench.router_cpu [--requests 20000] [--prompt-bytes 4096] [--groups 64]
                                         [--workers 1000 --idle 10]

Starts bare backends and `python -m routing.engine` as separate processes, sends keep-alive
requests over 32 connections from this process, and reads the router's CPU time from the kernel,
which other load hardly affects, unlike rates. `--idle` adds health
checks alone. Not a comparison with other routers.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import uvloop


def _plain(cached: int) -> bytes:
    usage: dict[str, object] = {"prompt_tokens": 1000, "completion_tokens": 40}
    usage["total_tokens"] = 1040
    if cached >= 0:
        usage["prompt_tokens_details"] = {"cached_tokens": cached}
    message = {"role": "assistant", "content": "ok " * 40}
    answer = {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message}],
        "usage": usage,
    }
    body = json.dumps(answer).encode()
    return (
        b"HTTP/1.1 200 OK\r\ndate: x\r\nserver: uvicorn\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%b" % (len(body), body)
    )


_EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
_CHUNK = b"%x\r\n%b\r\n" % (len(_EVENT), _EVENT)
_STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


class Backend(asyncio.Protocol):
    """Answers every complete request at once, or streams `events` events, one a loop turn."""

    def __init__(self, events: int, answer: bytes) -> None:
        self._events = events
        self._answer = answer
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._data[:end].lower()
        at = head.find(b"content-length: ")
        length = int(head[at + 16 :].split(b"\r\n")[0]) if at >= 0 else 0
        if len(self._data) < end + 4 + length:
            return
        self._data = b""
        if self._events and b"post " in head:
            self._transport.write(_STREAM)
            self._stream(self._events)
        else:
            self._transport.write(self._answer)

    def _stream(self, left: int) -> None:
        if left:
            self._transport.write(_CHUNK)
            asyncio.get_running_loop().call_later(0.001, self._stream, left - 1)
        else:
            self._transport.write(b"0\r\n\r\n")


def worker_hosts(workers: int) -> list[str]:
    """Return a loopback address for each worker, so that two backends serve any number."""
    return [f"127.0.{number // 250}.{1 + number % 250}" for number in range(workers)]


async def backend(port: int, events: int, cached: int, hosts: list[str]) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Backend(events, _plain(cached)), hosts, port)
    await server.serve_forever()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def requests(groups: int, prompt_bytes: int, stream: bool) -> list[bytes]:
    out = []
    for group in range(groups):
        text = f"group {group} " + "lorem ipsum dolor sit amet " * (prompt_bytes // 20)
        requested = {"model": "m", "messages": [{"role": "user", "content": text[:prompt_bytes]}]}
        body = json.dumps({**requested, "stream": True} if stream else requested).encode()
        out.append(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nAccept: */*\r\n"
            b"User-Agent: bench\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
    return out


async def client(port: int, wires: list[bytes], count: int, offset: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for index in range(count):
        writer.write(wires[(index * 7 + offset) % len(wires)])
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise ConnectionError(f"not served: {head.splitlines()[0]!r}")
        at = head.find(b"content-length: ")
        if at >= 0:
            await reader.readexactly(int(head[at + 16 :].split(b"\r\n")[0]))
        else:
            await reader.readuntil(b"\r\n0\r\n\r\n")
    writer.close()


async def measure(flags: argparse.Namespace, events: int) -> None:
    ports = [free_port() for _ in range(3)]
    backends = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "bench.router_cpu"),
                *("--backend", str(port), "--events", str(events)),
                *("--cached", str(flags.cached), "--workers", str(flags.workers)),
                *("--second",) * second,
            ]
        )
        for second, port in enumerate(ports[:2])
    ]
    command = [sys.executable, "-m", "routing.engine", "--listen", f"127.0.0.1:{ports[2]}"]
    for number, host in enumerate(worker_hosts(flags.workers)):
        command += ["--worker", f"http://{host}:{ports[number % 2]}"]
    # Access log enabled, output discarded.
    router = subprocess.Popen(
        [*command, "--model", "m", "--strategy", flags.strategy, *flags.engine.split()],
        cwd=flags.checkout or None,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wires = requests(flags.groups, flags.prompt_bytes, stream=events > 0)
        while True:
            try:
                await client(ports[2], wires, 200, 0)
                break
            except (OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.1)
        count = max(1, flags.requests // max(1, events) // 32)
        before, start = cpu_s(router.pid), time.perf_counter()
        await asyncio.gather(*(client(ports[2], wires, count, index) for index in range(32)))
        cpu, wall = cpu_s(router.pid) - before, time.perf_counter() - start
        total = 32 * count
        rss = int(Path(f"/proc/{router.pid}/statm").read_text().split()[1]) * 4096
        checks = ""
        if flags.idle:
            before, start = cpu_s(router.pid), time.perf_counter()
            await asyncio.sleep(flags.idle)
            spent = (cpu_s(router.pid) - before) / (time.perf_counter() - start)
            checks = f", idle {1000 * spent:.1f} ms CPU/s"
        each = f"{cpu / (total * events) * 1e6:.1f} us CPU an event, " if events else ""
        print(
            f"{flags.checkout or '.'}: {flags.strategy}, {flags.workers} workers, "
            f"{flags.prompt_bytes} byte prompts, "
            f"{events} events: {each}"
            f"{cpu / total * 1e6:.1f} us CPU a request, {total / wall:.0f} requests/s by the "
            f"clock, {rss / 2**20:.0f} MiB resident{checks}"
        )
    finally:
        for process in (router, *backends):
            process.terminate()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--prompt-bytes", type=int, default=4096)
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--idle", type=float, default=0, help="seconds of health checks only")
    parser.add_argument("--strategy", default="prefixaware")
    parser.add_argument("--events", type=int, default=0)
    parser.add_argument("--engine", default="", help="more flags for the router, in one word")
    parser.add_argument("--cached", type=int, default=-1, help="reported cached tokens of 1000")
    parser.add_argument("--checkout", default="", help="run the router of this checkout")
    parser.add_argument("--backend", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--second", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if flags.backend:
        hosts = worker_hosts(flags.workers)[flags.second :: 2]
        uvloop.run(backend(flags.backend, flags.events, flags.cached, hosts))
    else:
        uvloop.run(measure(flags, flags.events))


if __name__ == "__main__":
    main()
