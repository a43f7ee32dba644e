"""Log of a worker or router: its last lines, followed by new ones.

Lines are yielded once across reconnects: by their marker, or, without markers, by comparing the end
of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from console.client.client import Client
from console.client.errors import Unreachable
from console.client.watch import SILENCE_S, parse_events

TAIL_LINES = 200
MAX_LINES = 2000
RECONNECT_S = 1.0


def read_log(
    client: Client,
    endpoint: str,
    worker: str = "",
    container: str = "",
    tail: int = TAIL_LINES,
    *,
    follow: bool = False,
) -> tuple[dict[str, Any], Iterator[str]]:
    """Return the log's name and its last lines, followed by new ones with `follow`. Defaults to the
    first container of the first worker.
    """
    path = ("endpoints", endpoint, "logs", "lines")
    last = 0 if follow else tail
    end: dict[str, Any] = client.get(*path, worker=worker, container=container, tail=last)
    if not follow:
        return end, iter(end["lines"])
    log = {"worker": end["worker"], "container": end["container"]}
    if end["marks"]:
        return end, _follow_marked(client, endpoint, {**log, "tail": tail})
    return end, _poll(client, path, log, client.get(*path, **log, tail=tail)["lines"])


def _follow_marked(client: Client, endpoint: str, query: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a log with markers until it ends."""
    mark = ""
    while True:
        headers = {"Last-Event-ID": mark} if mark else {}
        path = ("endpoints", endpoint, "logs", "stream")
        try:
            with client.stream(*path, query=query, headers=headers, silence_s=SILENCE_S) as answer:
                for event in parse_events(answer):
                    mark = event.id or mark
                    if event.name == "ended":
                        return
                    if event.name == "problem":
                        raise _Problem(json.loads(event.data))
                    if event.name in ("message", "anew") and event.data:
                        yield json.loads(event.data)
        except _Problem:
            raise
        except Unreachable:
            client.get("me")  # retries until the console is back, or raises
        if not client.live:
            return
        client.pause(RECONNECT_S)


def _poll(
    client: Client, path: tuple[str, ...], log: dict[str, Any], first: list[str]
) -> Iterator[str]:
    """Yield the lines of a log without markers by polling its end, after the `first` ones."""
    yield from first
    before = first
    while True:
        client.pause(RECONNECT_S)
        now: list[str] = client.get(*path, **log, tail=MAX_LINES)["lines"]
        yield from now[_first_new_line(before, now) :]
        before = now


class _Problem(Unreachable):
    """Permanent error reported by the console in the stream."""


def _first_new_line(before: list[str], now: list[str]) -> int:
    """Return the index of the first line in `now` that is not in `before`."""
    for begin in range(len(now), 0, -1):
        common = min(begin, len(before))
        if common and now[begin - common : begin] == before[-common:]:
            return begin
    return 0
