"""Admin port: HTTP/1.1, one request per connection, bodies ignored.

GET /healthz /readyz /metrics for probes and Prometheus; GET /stats /namespaces /curve as JSON,
whose field names are a contract with the console; POST /flush /resize /drain (admin_orders.py).
Only a small head is read; responses contain no keys or values. Requests from browsers are rejected
(processkit.browsers).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cachetier.engine.admin_orders import AdminCommands
from cachetier.engine.config import ListenAddress
from cachetier.engine.metrics import render_metrics
from cachetier.engine.net.listener import TlsListener
from cachetier.engine.net.tls import LiveContext
from cachetier.engine.node import VERSION, Node
from console.processkit import listener
from console.processkit.metrics import CONTENT_TYPE

# Number of namespaces listed, largest first; metrics have the totals.
_MAX_LISTED = 200


def stats_json(node: Node) -> dict[str, Any]:
    counters, config = node.counters, node.config
    hits, lookups = counters.hit_rate()
    return {
        "version": VERSION,
        "pool": config.pool,
        "listen": str(config.listen),
        "uptime_s": round(time.monotonic() - node.started_at, 3),
        "draining": node.draining,
        "connections": len(node.sessions),
        "policy": config.policy,
        "policy_ghosts": node.policy.ghosts(),
        "quotas": dict(config.quotas),
        "refused_namespaces": None if node.admission is None else node.admission.shut(),
        "memory": asdict(node.store.usage()),
        "disk": None if node.disk is None else asdict(node.disk.usage()),
        "shm": {"name": node.store.arena.shm, "off": node.shm_off},
        "lookups": lookups,
        "hits": hits,
        "read_bytes": counters.read_bytes,
        "written_bytes": counters.written_bytes,
        "moved_in": dict(counters.moved_in),
        "evicted": {reason.value: count for reason, count in counters.evicted.items()},
        "rejected": dict(counters.rejected),
        "integrity_failures": counters.integrity_failures,
        "handover": node.handover.facts() if node.handover is not None else None,
    }


def namespaces_json(node: Node) -> dict[str, Any]:
    spaces = node.census.spaces()
    listed = [
        {
            "namespace": name,
            "bytes": space.bytes,
            "blocks": space.blocks,
            "lookups": space.lookups,
            "hits": space.hits,
            "evicted": sum(space.evicted.values()),
            "evicted_by": {reason.value: count for reason, count in space.evicted.items()},
            "quota_bytes": node.config.quotas.get(name),
        }
        for name, space in spaces[:_MAX_LISTED]
    ]
    return {"namespaces": listed, "not_listed": max(len(spaces) - _MAX_LISTED, 0)}


def curve_json(node: Node) -> dict[str, Any]:
    """Return the LRU hit curve (`points`) beside the node's measured hit rate."""
    capacity = node.store.usage().capacity_bytes
    curve = node.census.curve
    hits, lookups = node.counters.hit_rate()
    points = curve.points(capacity) if curve.lookups else []
    return {
        "capacity_bytes": capacity,
        "requests": curve.lookups,
        "samples": curve.samples,
        "sampled_share": curve.sampled_share,
        "measured_hit_rate": hits / lookups if lookups else None,
        "knee_bytes": curve.knee(capacity),
        "points": [
            {"bytes": point.capacity_bytes, "hit_rate": round(point.hit_ratio, 4)}
            for point in points
        ],
    }


_MAX_HEAD = 8192
_DEADLINE_S = 5.0
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"

_PAGES: dict[str, Callable[[Node], dict[str, Any]]] = {
    "/stats": stats_json,
    "/namespaces": namespaces_json,
    "/curve": curve_json,
}

AdminResponse = tuple[int, str, str]


class AdminServer:
    """Admin server; `on_drain` is called once per POST /drain."""

    def __init__(self, node: Node, on_drain: Callable[[], None]) -> None:
        self._node = node
        self._orders = AdminCommands(node, on_drain)
        self._listener: asyncio.Server | TlsListener | None = None
        self._is_local = True

    @property
    def port(self) -> int:
        assert self._listener is not None
        if isinstance(self._listener, TlsListener):
            return self._listener.port
        return int(self._listener.sockets[0].getsockname()[1])

    async def start(self, place: ListenAddress) -> None:
        """Listen with the clients' TLS settings, without client certificates (probes have none)."""
        node, guards = self._node, self._node.config.guards
        self._is_local = place.is_local
        if guards.tls is None or guards.admin_plain:
            self._listener = await asyncio.start_server(
                self._serve, place.host, place.port, limit=_MAX_HEAD
            )
            return
        live = LiveContext(guards.tls, node.counters.handshake_failed, certificates_optional=True)
        node.tls_contexts.append(live)
        self._listener = TlsListener(live, self._connection, node.counters.turned_away)
        await self._listener.open(place)

    def _connection(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(limit=_MAX_HEAD), self._serve)

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_DEADLINE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                peer = writer.get_extra_info("peername")
                status, kind, body = self._answer(head, str(peer[0]) if peer else "")
                writer.write(_encode_response(status, kind, body.encode()))
                await writer.drain()
        except MemoryError:
            self._node.shortage.failed()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # a malformed request gets no response
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def _answer(self, head: bytes, host: str) -> AdminResponse:
        lines = head.decode("latin-1").split("\r\n")
        words = lines[0].split(" ")
        if len(words) != 3:
            return 400, _TEXT, "bad request\n"
        method, target = words[0], urlsplit(words[1])
        headers = _parse_headers(lines[1:])
        refusal = listener.request_problem(
            target.path, headers.get, is_local=self._is_local, is_order=target.path in self._orders
        )
        if refusal:
            self._node.counters.admin_refused += 1
            return 403, _JSON, json.dumps({"code": "browser_refused", "detail": refusal}) + "\n"
        if target.path in self._orders:
            if method != "POST":
                return 405, _TEXT, "use POST\n"
            query = dict(parse_qsl(target.query, keep_blank_values=True))
            bearer = headers.get("authorization", "")
            status, body = self._orders.give(target.path, query, bearer, host)
            return status, _JSON, json.dumps(body) + "\n"
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, "use GET\n"
        return self._page(target.path)

    def _page(self, path: str) -> AdminResponse:
        trouble = self._node.shortage.trouble()
        if path in ("/healthz", "/readyz") and trouble:
            return 503, _TEXT, f"{trouble}\n"
        if path == "/healthz":
            return 200, _TEXT, f"ok\n{self._node.disk_trouble()}"
        if path == "/readyz":
            if self._node.draining:
                return 503, _TEXT, "draining\n"
            return 200, _TEXT, "ready\n"
        if path == "/metrics":
            return 200, CONTENT_TYPE, render_metrics(self._node)
        if path in _PAGES:
            return 200, _JSON, json.dumps(_PAGES[path](self._node)) + "\n"
        return 404, _TEXT, "not found\n"


def _parse_headers(lines: list[str]) -> dict[str, str]:
    """Return headers by lower-case name; the first of duplicates counts."""
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, text = line.partition(":")
        if colon:
            headers.setdefault(name.strip().lower(), text.strip())
    return headers


def _encode_response(status: int, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + body
