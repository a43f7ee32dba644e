"""A worker's log as lines: its end, or on and on.

Promises each line once, however often a connection ends: by the mark of the last line, and where a
log has no marks by how its end looked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypedDict

from console.client.errors import Unreachable
from console.client.http import Http
from console.client.watch import SILENCE_S, events

TAIL_LINES = 200
MOST_LINES = 2000
AGAIN_S = 1.0


class LogEnd(TypedDict):
    """Which log it is, and its last lines. `others`: how many more logs this endpoint has;
    `marks`: its lines have times, by which it is told on and on."""

    worker: str
    container: str
    state: str
    others: int
    marks: bool
    lines: list[str]


def marked(http: Http, path: str, params: dict[str, Any]) -> Iterator[str]:
    """Lines of a log with marks, until it ends."""
    mark = ""
    while True:
        headers = {"Last-Event-ID": mark} if mark else {}
        try:
            with http.stream(
                path, params, accept="*/*", headers=headers, silence_s=SILENCE_S
            ) as answer:
                for event in events(answer):
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
            http.get("me/")  # whether the console is back; its own tries say for how long
        if not http.live:
            return
        http.pause(AGAIN_S)


def looked_at(http: Http, path: str, params: dict[str, Any], first: list[str]) -> Iterator[str]:
    """Lines of a log without marks: its new end at every look, after the `first` ones."""
    yield from first
    before = first
    while True:
        http.pause(AGAIN_S)
        now: list[str] = http.get(path, {**params, "tail": MOST_LINES})["lines"]
        yield from now[_overlap(before, now) :]
        before = now


class _Problem(Unreachable):
    """The console's own word that it cannot go on."""


def _overlap(before: list[str], now: list[str]) -> int:
    """Where in `now` begins what was not in `before`."""
    for begin in range(len(now), 0, -1):
        known = min(begin, len(before))
        if known and now[begin - known : begin] == before[-known:]:
            return begin
    return 0
