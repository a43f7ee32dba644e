"""A thing as it changes: each state once, from a stream where there is one, else by asking.

Promises that a connection which breaks is made again from what was seen last, that silence longer
than a few heartbeats counts as broken, and that a caller's deadline holds in between.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from console.client.errors import NotFound, Refused, Throttled, TimedOut, Unreachable
from console.client.http import Http

STREAM = "text/event-stream"
SILENCE_S = 45.0
"""Three heartbeats of the console."""
LOOK_S = 0.5
LONGEST_LOOK_S = 5.0
_ENDS = re.compile("\r\n|\r|\n")


@dataclass(slots=True)
class WatchEvent:
    """One server-sent event; `gone` means that what was watched is no more."""

    name: str = "message"
    id: str = ""
    data: str = ""


@dataclass(slots=True)
class Watch:
    """Yields the states of `path`. `fallback` says why they come by asking again, "" while they
    come as a stream."""

    http: Http
    path: str
    timeout_s: float | None = None
    fallback: str = ""
    _end: float | None = field(default=None, init=False)
    _seen: str = field(default="", init=False)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Ends when the thing is gone; `TimedOut` when the time is."""
        self._end = None if self.timeout_s is None else time.monotonic() + self.timeout_s
        if not self.http.live:
            self.fallback = "the console is asked in this process"
        while not self.fallback:
            try:
                for event in self._streamed():
                    if event.name == "gone":
                        return
                    yield json.loads(event.data)
            except NotFound:
                return
            except (Refused, Throttled) as error:
                self.fallback = f"the console grants no stream ({error.code})"
            except Unreachable:
                # Over before its time: a console that restarts. Asking tells whether it is back.
                self._pause(LOOK_S)
                self.http.get(self.path)
            self._left()
        yield from self._asked()

    def _streamed(self) -> Iterator[WatchEvent]:
        headers = {"Last-Event-ID": self._seen} if self._seen else {}
        left = self._left()
        silence = SILENCE_S if left is None else min(SILENCE_S, left + 0.1)
        with self.http.stream(
            self.path, {"watch": True}, accept=STREAM, headers=headers, silence_s=silence
        ) as answer:
            if not answer.headers.get("Content-Type", "").startswith(STREAM):
                self.fallback = "this console has no stream of it"
                return
            for event in events(answer):
                self._seen = event.id or self._seen
                if event.name != "error" and event.data:
                    yield event
                self._left()

    def _asked(self) -> Iterator[dict[str, Any]]:
        etag, known, pause_s = "", None, LOOK_S
        while True:
            try:
                answer = self.http.send("GET", self.path, if_none_match=etag)
            except NotFound:
                return
            if answer.status != httpx.codes.NOT_MODIFIED and answer.body != known:
                etag, known, pause_s = answer.etag, answer.body, LOOK_S
                yield answer.body
            self._pause(pause_s)
            if self.http.live:  # in this process it costs nobody else anything
                pause_s = min(pause_s * 1.5, LONGEST_LOOK_S)

    def _pause(self, seconds: float) -> None:
        left = self._left()
        self.http.pause(seconds if left is None else min(seconds, left))

    def _left(self) -> float | None:
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimedOut(f"Not within {self.timeout_s:g} s.")
        return left


def events(answer: httpx.Response) -> Iterator[WatchEvent]:
    """Of a stream, as the HTML standard reads it; comments (heartbeats) are events without data."""
    found, lines = WatchEvent(), list[str]()
    for line in _lines(answer):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if lines or found.id:
                found.data = "\n".join(lines)
                yield found
            found, lines = WatchEvent(), []
        elif not name:
            yield WatchEvent(name="comment")
        elif name == "data":
            lines.append(value)
        elif name == "event":
            found.name = value
        elif name == "id":
            found.id = value


def _lines(answer: httpx.Response) -> Iterator[str]:
    """Only these three end a line of a stream; `iter_lines` knows more, which may be in a text."""
    pending = ""
    for part in answer.iter_text():
        pending += part
        held = "\r" if pending.endswith("\r") else ""  # its "\n" may be still to come
        *whole, pending = _ENDS.split(pending.removesuffix("\r"))
        pending += held
        yield from whole
