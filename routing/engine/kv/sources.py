"""Resolve a worker's KV event endpoints, from the worker or from configuration.

vLLM binds its publisher only if the endpoint contains `*` or `::`; a resolved address does not show
which. The router connects; if that never succeeds, `DIALS_OUT` is the advice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import orjson

BIND = "bind:"  # endpoint prefix: the router binds, the worker connects
MAX_RANKS = 1024

DIALS_OUT = (
    "The worker's endpoint is a fixed address, so vLLM connects to it instead of binding. Use "
    "tcp://*:PORT in --kv-events-config, or bind it in the router: --kv-events URL=bind:tcp://*:PORT."
)
_TCP = re.compile(r"tcp://(\*|\[[0-9A-Fa-f:.]+\]|::|[A-Za-z0-9._-]+):(\d{1,5})")
_WILDCARD_HOSTS = ("*", "::", "[::]")


class SourceError(Exception):
    """No usable source; `reason` is a metric label."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class EventSource:
    """Event stream of one data-parallel rank. `replay` "": no replay."""

    rank: int
    events: str
    replay: str = ""
    bind: bool = False


def resolve_endpoint(endpoint: str, host: str) -> str:
    """Return the endpoint with `*` replaced by the worker's host. Raise SourceError."""
    if endpoint.startswith(("ipc:///", "ipc://@")):
        return endpoint
    if endpoint.startswith("ipc://"):
        raise SourceError(
            "endpoint_unusable",
            f"{endpoint[:200]!r} is relative to the folder the worker runs in. Name it here by its "
            "full path: --kv-events URL=ipc:///FOLDER/NAME.",
        )
    match = _TCP.fullmatch(endpoint)
    if match is None or not 0 < int(match[2]) < 65536:
        raise SourceError(
            "endpoint_unusable",
            f"{endpoint[:200]!r} cannot be reached from another process. "
            "Use tcp://*:PORT in the worker's --kv-events-config.",
        )
    if match[1] == "0.0.0.0":  # vLLM connects to this address instead of binding it
        raise SourceError("endpoint_dials_out", DIALS_OUT)
    if match[1] in _WILDCARD_HOSTS:
        name = f"[{host}]" if ":" in host else host
        return f"tcp://{name}:{match[2]}"
    return endpoint


def configured_sources(
    events: Sequence[str], replays: Sequence[str], host: str
) -> list[EventSource]:
    """Return sources from flags, one endpoint per rank. Raise SourceError."""
    sources = []
    for rank, endpoint in enumerate(events):
        bind = endpoint.startswith(BIND)
        replay = (
            resolve_endpoint(replays[rank], host) if rank < len(replays) and replays[rank] else ""
        )
        if bind:
            endpoint = endpoint.removeprefix(BIND)
            if not (_TCP.fullmatch(endpoint) or endpoint.startswith("ipc://")):
                raise SourceError("endpoint_unusable", f"{endpoint!r} cannot be bound.")
        else:
            endpoint = resolve_endpoint(endpoint, host)
        sources.append(EventSource(rank, endpoint, replay, bind))
    return sources


def discovered_sources(status: int, body: bytes, host: str) -> list[EventSource]:
    """Return sources from `GET /kv_event_sources`. Raise SourceError."""
    if status in (404, 405):
        raise SourceError(
            "discovery_missing",
            "The worker has no /kv_event_sources (vLLM before 0.32, or no vLLM): name its "
            "endpoint with --kv-events.",
        )
    try:
        data = orjson.loads(body) if status == 200 else None
    except orjson.JSONDecodeError:
        data = None
    if not isinstance(data, dict) or len(data) > MAX_RANKS:
        raise SourceError(
            "discovery_failed", f"/kv_event_sources returned {status}, not an object of sources."
        )
    if not data:
        raise SourceError(
            "events_off",
            "The worker publishes no KV events: start it with --kv-events-config "
            '\'{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557",'
            '"replay_endpoint":"tcp://*:5558"}\'.',
        )
    sources = []
    for rank, item in sorted(data.items()):
        if not rank.isdecimal() or len(rank) > 6 or not isinstance(item, dict):
            raise SourceError("discovery_failed", "/kv_event_sources has another shape.")
        sources.append(_parse_source(int(rank), item, host))
    return sources


def _parse_source(rank: int, item: dict[str, object], host: str) -> EventSource:
    endpoint, replay = item.get("endpoint"), item.get("replay_endpoint")
    if item.get("enable_kv_cache_events") is False or item.get("publisher") == "null":
        raise SourceError("events_off", "KV events are disabled on the worker.")
    if not isinstance(endpoint, str):
        raise SourceError("discovery_failed", "/kv_event_sources names no endpoint.")
    if item.get("buffer_steps") == 0:
        replay = None  # would always be empty
    return EventSource(
        rank,
        resolve_endpoint(endpoint, host),
        resolve_endpoint(replay, host) if isinstance(replay, str) else "",
    )
