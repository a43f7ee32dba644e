"""Lines of a worker log, as a tail or a continuous stream.

Each line is yielded once across reconnects: by its marker, or, without markers, by comparing the
end of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypedDict

from console.client.errors import Unreachable
from console.client.http import Http
from console.client.watch import SILENCE_S, parse_events

TAIL_LINES = 200
MAX_LINES = 2000
RECONNECT_S = 1.0


class LogEnd(TypedDict):
    """Log name and last lines. `others`: number of further logs of this endpoint; `marks`: lines
    have timestamps, used to resume the stream.
    """

    worker: str
    container: str
    state: str
    others: int
    marks: bool
    lines: list[str]


def follow_marked(http: Http, path: str, params: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a log with markers until it ends."""
    mark = ""
    while True:
        headers = {"Last-Event-ID": mark} if mark else {}
        try:
            with http.stream(
                path, params, accept="*/*", headers=headers, silence_s=SILENCE_S
            ) as answer:
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
            http.get("me/")  # retries until the console is back, or raises
        if not http.live:
            return
        http.pause(RECONNECT_S)


def poll_log(http: Http, path: str, params: dict[str, Any], first: list[str]) -> Iterator[str]:
    """Yield the lines of a log without markers by polling its end, after the `first` ones."""
    yield from first
    before = first
    while True:
        http.pause(RECONNECT_S)
        now: list[str] = http.get(path, {**params, "tail": MAX_LINES})["lines"]
        yield from now[_first_new_line(before, now) :]
        before = now


class _Problem(Unreachable):
    """Permanent error reported by the console in the stream."""


def _first_new_line(before: list[str], now: list[str]) -> int:
    """Return the index of the first line in `now` that is not in `before`."""
    for begin in range(len(now), 0, -1):
        known = min(begin, len(before))
        if known and now[begin - known : begin] == before[-known:]:
            return begin
    return 0
