"""Kubernetes list and watch API for discovery, over HTTP.

Tests change `slices` with `put` and `delete`, and inject faults by attributes. Watches are chunked
streams that start after the requested version, as in Kubernetes.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.fake_worker import Received, read_request


def endpoint(address: str, pod: str = "", **conditions: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"addresses": [address], "conditions": conditions}
    if pod:
        found["targetRef"] = {"kind": "Pod", "name": pod, "namespace": "default"}
    return found


def endpoint_slice(
    name: str,
    *endpoints: dict[str, Any],
    port: int = 8000,
    family: str = "IPv4",
    port_name: str = "http",
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": "workers"}},
        "addressType": family,
        "ports": [{"name": port_name, "port": port, "protocol": "TCP"}],
        "endpoints": list(endpoints),
    }


class FakeKube:
    def __init__(self, token: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.token = token  # "": no authentication
        self.tls = tls
        self.slices: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.oldest = 0  # older watches have expired
        self.page = 100
        self.status = 200  # of every response
        self.end_watches = False  # close after the pending events
        self.requests: list[Received] = []
        self.lists = 0
        self.watches = 0
        self.port = 0
        self._events: list[tuple[int, dict[str, Any]]] = []
        self._news = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def __aenter__(self) -> FakeKube:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()

    async def cut(self) -> None:
        """Reset every connection."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def put(self, data: dict[str, Any]) -> None:
        name = data["metadata"]["name"]
        kind = "MODIFIED" if name in self.slices else "ADDED"
        self.slices[name] = data
        await self.send_event(kind, data)

    async def delete(self, name: str) -> None:
        await self.send_event("DELETED", self.slices.pop(name))

    async def send_event(self, kind: str, data: dict[str, Any]) -> None:
        self.version += 1
        if kind != "ERROR":
            data["metadata"]["resourceVersion"] = str(self.version)
        async with self._news:
            self._events.append((self.version, {"type": kind, "object": data}))
            self._news.notify_all()

    async def bookmark(self) -> None:
        await self.send_event("BOOKMARK", {"metadata": {}})

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            request = await read_request(reader)
            self.requests.append(request)
            await self._answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, request: Received, writer: asyncio.StreamWriter) -> None:
        query = parse_qs(urlsplit(request.target).query)
        status = self.status
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            status = 401
        if "watch" in query:
            self.watches += 1
            since = int(query["resourceVersion"][0])
            if since < self.oldest:
                status = 410
            if status == 200:
                await self._watch(since, writer)
                return
        else:
            self.lists += 1
        if status != 200:
            await self._json(writer, {"kind": "Status", "message": f"no: {status}"}, status)
            return
        items = [self.slices[name] for name in sorted(self.slices)]
        at = int(query.get("continue", ["0"])[0])
        metadata = {"resourceVersion": str(self.version)}
        if len(items) > at + self.page:
            metadata["continue"] = str(at + self.page)
        await self._json(writer, {"metadata": metadata, "items": items[at : at + self.page]})

    @staticmethod
    async def _json(writer: asyncio.StreamWriter, data: Any, status: int = 200) -> None:
        body = json.dumps(data).encode()
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    async def _watch(self, since: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            async with self._news:
                while not (news := [item for item in self._events if item[0] > since]):
                    if self.end_watches:
                        writer.write(b"0\r\n\r\n")
                        await writer.drain()
                        return
                    await writer.drain()
                    await self._news.wait()
            for version, event in news:
                since = version
                data = json.dumps(event).encode() + b"\n"
                # In two chunks: chunk and line boundaries differ.
                for part in (data[:10], data[10:]):
                    writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            await writer.drain()
