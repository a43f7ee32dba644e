"""Several routers as processes behind sockets, sharing state through a real Valkey.

    .venv/bin/python -m bench.several_routers [--streams 2000] [limit kill warm cpu ...]

`limit`: requests let through by four routers under one rate. `kill`: one of four is killed under
streams. `warm`: time until a new router has the memory of the others. `cpu`: CPU time a request,
one router alone and with the exchange, at one rate. Workers are bare backends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvloop

from bench.router_cpu import _CHUNK, Backend, _plain, cpu_s, free_port, requests
from console.launcher.tools import valkey_server

LIMIT = 600  # requests a minute
_EVENT_S = 2.0


class SlowBackend(Backend):
    """Streams one event every two seconds: many streams at little CPU."""

    def _stream(self, left: int) -> None:
        self._transport.write(_CHUNK)
        asyncio.get_running_loop().call_later(_EVENT_S, self._stream, left)


async def slow_backend(port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: SlowBackend(1, _plain(0)), "127.0.0.1", port, backlog=2048
    )
    await server.serve_forever()


class Rig:
    """Valkey, two backends and any number of routers in one folder."""

    def __init__(self, folder: Path, streams: bool) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.store = free_port()
        binary = valkey_server()
        assert binary is not None, "no Valkey: make install"
        argv = [str(binary), "--port", str(self.store), "--bind", "127.0.0.1", "--save", ""]
        self._start([*argv, "--dir", str(folder)])
        self.workers = [free_port() for _ in range(2)]
        for port in self.workers:
            module = "bench.several_routers" if streams else "bench.router_cpu"
            backend = ("-m", module, "--backend", str(port))
            self._start([sys.executable, *backend])
        (folder / "hash.key").write_text("h" * 64)

    def _start(self, argv: list[str]) -> subprocess.Popen[bytes]:
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(argv, stdout=quiet, stderr=quiet)
        self.processes.append(process)
        return process

    def router(self, endpoint: str, shared: bool = True, **more: Any) -> Router:
        ports = free_port(), free_port()
        config: dict[str, Any] = {
            "listen": f"127.0.0.1:{ports[0]}",
            "admin": f"127.0.0.1:{ports[1]}",
            "endpoint": endpoint,
            "model": "m",
            "hash_key_file": "hash.key",
            "workers": [{"url": f"http://127.0.0.1:{port}"} for port in self.workers],
            **more,
        }
        if shared:
            config["state_store"] = {"url": f"redis://127.0.0.1:{self.store}", "routers": 4}
        file = self.folder / f"router-{ports[0]}.json"
        file.write_text(json.dumps(config))
        return Router(
            self._start([sys.executable, "-m", "routing.engine", "--config", str(file)]), *ports
        )

    def close(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


class Router:
    def __init__(self, process: subprocess.Popen[bytes], port: int, admin: int) -> None:
        self.process = process
        self.port = port
        self._admin = admin

    def page(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._admin}{path}", timeout=5) as answer:
            return json.load(answer)

    def ready(self, peers: int) -> bool:
        try:
            self.page("/readyz")
            found = self.page("/peers")["exchange"]
        except OSError:
            return False
        return found is None or (found["connected"] and len(found["peers"]) >= peers)

    @property
    def blocks(self) -> int:
        return sum(self.page("/index")["workers"].values())


async def until_ready(routers: list[Router], peers: int) -> None:
    while not all(router.ready(peers) for router in routers):
        await asyncio.sleep(0.05)


async def send(port: int, wire: bytes) -> int:
    """Return the status of one request on a connection of its own; 0: broken off."""
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(wire)
        head = await reader.readuntil(b"\r\n\r\n")
        at = head.find(b"content-length: ")
        await reader.readexactly(int(head[at + 16 :].split(b"\r\n")[0]))
        return int(head[9:12])
    except (OSError, asyncio.IncompleteReadError):
        return 0
    finally:
        if writer is not None:
            writer.transport.abort()


async def limit(rig: Rig) -> None:
    more = {"admission": {"requests_per_minute": LIMIT}}
    routers = [rig.router("limit", **more) for _ in range(4)]
    await until_ready(routers, 3)
    (wire,) = requests(1, 200, stream=False)
    statuses: list[int] = []
    began = time.perf_counter()

    async def caller(router: Router, pause_s: float) -> None:
        while time.perf_counter() - began < 12:
            statuses.append(await send(router.port, wire))
            await asyncio.sleep(pause_s)

    # Uneven: the first router gets most of the requests.
    paces = (0.004, 0.02, 0.02, 0.05)
    await asyncio.gather(*(caller(*pair) for pair in zip(routers, paces, strict=True)))
    seconds = time.perf_counter() - began
    passed = statuses.count(200)
    exact = LIMIT + LIMIT / 60 * seconds
    print(
        f"limit: {len(statuses)} requests in {seconds:.1f} s, {passed} let through; one router "
        f"with this rate: {exact:.0f}; {passed - exact:+.0f} ({passed / exact - 1:+.1%})",
        flush=True,
    )


async def kill(rig: Rig, streams: int) -> None:
    routers = [rig.router("kill") for _ in range(4)]
    await until_ready(routers, 3)
    wires = requests(64, 400, stream=True)
    broken = [0] * 4
    begun = 0

    async def stream(index: int) -> None:
        nonlocal begun
        reader, writer = await asyncio.open_connection("127.0.0.1", routers[index % 4].port)
        try:
            writer.write(wires[index % 64])
            await reader.readuntil(b"\n\n")
            begun += 1
            while await reader.read(65_536):
                pass
            broken[index % 4] += 1
        except (OSError, asyncio.IncompleteReadError):
            broken[index % 4] += 1
        finally:
            writer.transport.abort()

    tasks = []
    for index in range(streams):
        tasks.append(asyncio.create_task(stream(index)))
        if index % 50 == 0:
            await asyncio.sleep(0.02)
    while begun < streams:
        await asyncio.sleep(0.05)
    seen = [
        sum(w["in_flight"] + w["peers_in_flight"] for w in r.page("/workers")["workers"])
        for r in routers
    ]
    routers[0].process.kill()
    killed = time.perf_counter()

    def left() -> int:
        workers = routers[1].page("/workers")["workers"]
        return sum(worker["in_flight"] + worker["peers_in_flight"] for worker in workers)

    while left() > streams * 3 // 4:
        await asyncio.sleep(0.02)
    took = time.perf_counter() - killed
    print(
        f"kill: {streams} streams, each router counted {min(seen)} to {max(seen)}; broken by "
        f"router: {broken}; its load was removed after {took:.2f} s",
        flush=True,
    )
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def warm(rig: Rig) -> None:
    routers = [rig.router("warm") for _ in range(2)]
    await until_ready(routers, 1)
    wires = requests(2000, 8192, stream=False)
    for index, wire in enumerate(wires):
        await send(routers[index % 2].port, wire)
    await asyncio.sleep(2.5)  # the new router asks one that runs longer
    wanted = routers[0].blocks
    new = rig.router("warm")
    while True:
        with contextlib.suppress(OSError):
            new.page("/healthz")
            break
        await asyncio.sleep(0.01)
    began = time.perf_counter()
    while new.blocks < wanted and time.perf_counter() - began < 20:
        await asyncio.sleep(0.02)
    took = time.perf_counter() - began
    print(f"warm: {new.blocks} of {wanted} blocks {took:.2f} s after the port opened", flush=True)


async def cpu(rig: Rig) -> None:
    wires = requests(64, 4096, stream=False)

    async def cost(label: str, routers: list[Router], rate: float) -> None:
        before = [cpu_s(router.process.pid) for router in routers]
        count = 0
        began = time.perf_counter()

        async def caller(router: Router, offset: int) -> None:
            nonlocal count
            reader, writer = await asyncio.open_connection("127.0.0.1", router.port)
            index = offset
            await asyncio.sleep(offset / rate)
            due = time.perf_counter()
            while time.perf_counter() - began < 8:
                due += len(routers) * 8 / rate
                writer.write(wires[index % 64])
                head = await reader.readuntil(b"\r\n\r\n")
                at = head.find(b"content-length: ")
                await reader.readexactly(int(head[at + 16 :].split(b"\r\n")[0]))
                index, count = index + 7, count + 1
                await asyncio.sleep(max(due - time.perf_counter(), 0))
            writer.close()

        await asyncio.gather(*(caller(router, index) for router in routers for index in range(8)))
        seconds = time.perf_counter() - began
        used = [cpu_s(r.process.pid) - b for r, b in zip(routers, before, strict=True)]
        print(
            f"cpu, {label}: {count / seconds:.0f} requests/s in all, "
            f"{sum(used) / count * 1e6:.0f} us CPU a request, "
            f"{max(used) / seconds:.1%} of a core each",
            flush=True,
        )
        for router in routers:
            router.process.kill()

    for rate in (0.0001, 400.0):
        for label, number, shared in (
            ("one router", 1, False), ("one router with a store", 1, True),
            ("two routers", 2, True), ("two without a store", 2, False), ("four routers", 4, True),
            ("four without a store", 4, False), ("eight routers", 8, True),
            ("eight without a store", 8, False), ("one router", 1, False),
        ):  # fmt: skip
            routers = [rig.router(f"cpu{number}", shared) for _ in range(number)]
            await until_ready(routers, number - 1 if shared else 0)
            if rate < 1:
                before, began = [cpu_s(r.process.pid) for r in routers], time.perf_counter()
                await asyncio.sleep(6)
                used = max(cpu_s(r.process.pid) - b for r, b in zip(routers, before, strict=True))
                print(f"idle, {label}: {used / (time.perf_counter() - began):.2%} of a core each")
                for router in routers:
                    router.process.kill()
            else:
                await cost(label, routers, rate)


@contextmanager
def rig(streams: bool) -> Iterator[Rig]:
    with tempfile.TemporaryDirectory() as folder:
        made = Rig(Path(folder), streams)
        try:
            yield made
        finally:
            made.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.several_routers")
    parser.add_argument("parts", nargs="*", default=["limit", "kill", "warm", "cpu"])
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--backend", type=int, default=0, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if flags.backend:
        uvloop.run(slow_backend(flags.backend))
    for part in flags.parts:
        with rig(part == "kill") as made:
            if part == "kill":
                uvloop.run(kill(made, flags.streams))
            else:
                uvloop.run({"limit": limit, "warm": warm, "cpu": cpu}[part](made))


if __name__ == "__main__":
    main()
