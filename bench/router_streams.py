"""Many concurrent streams through our router, each verified byte for byte.

    .venv/bin/python -m bench.router_streams [--streams 2000] [--seconds 60] [--events-a-second 10]

Two workers write events of varying sizes, sometimes two at once or one in two parts, and end each
stream with checksum and length of all events. The client has its own chunk reader, computes the
checksum, and identifies the stream by the name it sent. Exits with 1 if a stream was lost, altered
or truncated, or if the router exceeds the memory limit of design.md. 75 seconds; the router has a
core for itself, client and workers share the other.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import resource
import signal
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import uvloop

from bench.peers import Process
from bench.rig import KEY, LOAD_CORE, busy, free_ports, machine, start_router, wait_for

RSS_LIMIT = 300 * 2**20
_OPENED_A_SECOND = 400
_LAST = b'data: {"checksum":"%b","bytes":%012d}\n\ndata: [DONE]\n\n'
_LAST_BYTES = len(_LAST % (b"0" * 32, 0))
_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Sat, 21 Nov 2026 07:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
_HEALTHY = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
_MODELS = b'{"object":"list","data":[{"id":"m","object":"model"}]}'


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Worker(asyncio.Protocol):
    """Answers sequential requests with a stream each."""

    def __init__(self, events: int, pause_s: float) -> None:
        self._events = events
        self._pause_s = pause_s
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        if not end or (head.startswith(b"POST") and not body.endswith(b"}")):
            return
        self._data = b""
        if head.startswith(b"POST"):
            self._begin(json.loads(body)["user"])
        elif b"/v1/models" in head:
            size = b"content-length: %d\r\n\r\n" % len(_MODELS)
            self._transport.write(b"HTTP/1.1 200 OK\r\n" + size + _MODELS)
        else:
            self._transport.write(_HEALTHY)

    def _begin(self, name: str) -> None:
        self._random = random.Random(name)
        self._sum = hashlib.blake2b(digest_size=16)
        self._bytes = 0
        self._left = self._events
        self._clock = asyncio.get_running_loop()
        self._transport.write(_HEAD + self._payload(b'data: {"user":"%b"}\n\n' % name.encode()))
        self._due = self._clock.time() + self._pause_s * self._random.random()
        self._clock.call_at(self._due, self._next)

    def _payload(self, data: bytes) -> bytes:
        self._sum.update(data)
        self._bytes += len(data)
        return _chunk(data)

    def _event(self) -> bytes:
        self._left -= 1
        filling = b"%x" % self._random.getrandbits(8 * self._random.choice((8, 40, 100, 300)))
        return self._payload(b'data: {"n":%d,"text":"%b"}\n\n' % (self._left, filling))

    def _next(self) -> None:
        if self._transport.is_closing():
            return
        if self._left <= 0:
            last = _LAST % (self._sum.hexdigest().encode(), self._bytes)
            self._transport.write(_chunk(last) + b"0\r\n\r\n")
            return
        event = self._event()
        chance = self._random.random()
        if chance < 0.05 and self._left:
            event += self._event()
        if 0.05 < chance < 0.1:  # split chunk, second part later
            cut = self._random.randrange(1, len(event))
            self._transport.write(event[:cut])
            self._clock.call_later(self._pause_s / 4, self._wrote, event[cut:])
        else:
            self._wrote(event)

    def _wrote(self, event: bytes) -> None:
        self._transport.write(event)
        self._due += self._pause_s
        self._clock.call_at(self._due, self._next)


class Client(asyncio.Protocol):
    """One stream: reads chunks, updates the checksum, compares at the end."""

    def __init__(self, name: str, ended: asyncio.Future[str]) -> None:
        self._name = name
        self._ended = ended
        self._raw = b""
        self._in_body = False
        self._kept = b""  # last bytes, possibly the checksum
        self._first = b""
        self._sum = hashlib.blake2b(digest_size=16)
        self._bytes = 0
        self.events = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        body = json.dumps(
            {
                "model": "m",
                "stream": True,
                "messages": [{"role": "user", "content": f"tell {self._name} " * 40}],
                "user": self._name,
            }
        ).encode()
        self._transport.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nAuthorization: Bearer %b\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (KEY.encode(), len(body), body)
        )

    def data_received(self, data: bytes) -> None:
        self._raw += data
        if not self._in_body:
            head, end, rest = self._raw.partition(b"\r\n\r\n")
            if not end:
                return
            if not head.startswith(b"HTTP/1.1 200 "):
                self._end("refused: " + head[:40].decode("latin-1"))
                return
            self._in_body, self._raw = True, rest
        while True:
            size, end, rest = self._raw.partition(b"\r\n")
            if not end:
                return
            length = int(size, 16)
            if len(rest) < length + 2:
                return
            if rest[length : length + 2] != b"\r\n":
                self._end("altered: chunk")
                return
            self._raw = rest[length + 2 :]
            if not length:
                self._end(self._verdict())
                return
            self._payload(rest[:length])

    def _payload(self, data: bytes) -> None:
        if not self._first:
            self._first = data
        self.events += data.count(b"\n\n")
        kept = self._kept + data
        known, self._kept = kept[:-_LAST_BYTES], kept[-_LAST_BYTES:]
        self._sum.update(known)
        self._bytes += len(known)

    def _verdict(self) -> str:
        if self._raw:
            return "altered: bytes after the end"
        if self._first != b'data: {"user":"%b"}\n\n' % self._name.encode():
            return "altered: another stream's"
        if self._kept != _LAST % (self._sum.hexdigest().encode(), self._bytes):
            return "altered: checksum"
        return "whole"

    def _end(self, verdict: str) -> None:
        if not self._ended.done():
            self._ended.set_result(verdict)
        self._transport.close()

    def connection_lost(self, _error: Exception | None) -> None:
        self._end("lost")


async def _serve(port: int, events: int, pause_s: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Worker(events, pause_s), "127.0.0.1", port, backlog=4096
    )
    loop.add_signal_handler(signal.SIGTERM, server.close)
    with suppress(asyncio.CancelledError):
        await server.serve_forever()


def _same(client: Client) -> Client:
    return client


async def _run(port: int, streams: int, deadline_s: float) -> tuple[Counter[str], int]:
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[str]] = []
    clients: list[Client] = []
    for number in range(streams):
        ended: asyncio.Future[str] = loop.create_future()
        client = Client(f"stream-{number}", ended)
        await loop.create_connection(partial(_same, client), "127.0.0.1", port)
        ends.append(ended)
        clients.append(client)
        await asyncio.sleep(1 / _OPENED_A_SECOND)
    await asyncio.wait(ends, timeout=deadline_s)
    verdicts = Counter(end.result() if end.done() else "not finished" for end in ends)
    return verdicts, sum(client.events for client in clients)


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def _report(router: Process, flags: argparse.Namespace) -> bool:
    idle = router.rss_bytes()
    before, start = router.cpu_s(), time.monotonic()
    verdicts, events = uvloop.run(_run(router.port, flags.streams, flags.seconds * 3 + 60))
    took, cpu = time.monotonic() - start, router.cpu_s() - before
    peak = _peak_bytes(router.pid)
    print(f"{machine()} {busy()}")
    print(
        f"{flags.streams} streams, {events} events in {took:.0f} s ({events / took:.0f}/s): "
        + ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    )
    print(
        f"router: {cpu / took:.0%} of its core, {cpu / events * 1e6:.1f} us CPU an event, "
        f"{idle / 2**20:.0f} MiB before, {peak / 2**20:.0f} MiB at most "
        f"(limit {RSS_LIMIT / 2**20:.0f}), {router.rss_bytes() / 2**20:.0f} MiB after"
    )
    return verdicts["whole"] == flags.streams and peak < RSS_LIMIT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--events-a-second", type=float, default=10, help="of each stream")
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    events = int(flags.seconds * flags.events_a_second)
    if flags.worker:
        uvloop.run(_serve(flags.worker, events, 1 / flags.events_a_second))
        return
    os.sched_setaffinity(0, {LOAD_CORE})
    ports = free_ports(2)
    with ExitStack() as running:
        for port in ports:
            command = [sys.executable, "-m", "bench.router_streams", "--worker", str(port)]
            command += ["--seconds", str(flags.seconds)]
            command += ["--events-a-second", str(flags.events_a_second)]
            running.enter_context(Process(command, port, LOAD_CORE))
            wait_for(port)
        folder = Path(running.enter_context(TemporaryDirectory()))
        router = start_router("prefixaware", [f"http://127.0.0.1:{port}" for port in ports], folder)
        running.enter_context(router)
        good = _report(router, flags)
    if not good:
        sys.exit("streams were lost or altered, or the router took too much memory")


if __name__ == "__main__":
    main()
