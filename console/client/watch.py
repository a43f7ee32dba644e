"""Watch an object: yield each state once, from a stream or by polling.

A broken connection resumes from the last event, silence of several heartbeats counts as broken,
and the caller's deadline applies throughout.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from console.client.client import Client
from console.client.errors import NotFound, Refused, Throttled, TimedOut, Unreachable

STREAM = "text/event-stream"
SILENCE_S = 45.0
"""Three heartbeats of the console."""
POLL_S = 0.5
MAX_POLL_S = 5.0
_ENDS = re.compile("\r\n|\r|\n")


@dataclass(slots=True)
class WatchEvent:
    """A server-sent event; `gone`: the watched object was deleted."""

    name: str = "message"
    id: str = ""
    data: str = ""


@dataclass(slots=True)
class Watch:
    """Yields the states of the object at `path`, the parts of its path. `fallback` is the reason
    for polling, "" while streaming.
    """

    client: Client
    path: tuple[object, ...]
    timeout_s: float | None = None
    fallback: str = ""
    _end: float | None = field(default=None, init=False)
    _seen: str = field(default="", init=False)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield until the object is deleted; raise `TimedOut` at the deadline."""
        self._end = None if self.timeout_s is None else time.monotonic() + self.timeout_s
        if not self.client.live:
            self.fallback = "the console runs in this process"
        while not self.fallback:
            try:
                for event in self._stream():
                    if event.name == "gone":
                        return
                    yield json.loads(event.data)
            except NotFound:
                return
            except (Refused, Throttled) as error:
                self.fallback = f"the console rejected the stream ({error.code})"
            except Unreachable:
                # Ended early: the console may be restarting. Polling shows whether it is back.
                self._pause(POLL_S)
                self.client.get(*self.path)
            self._left()
        yield from self._poll()

    def _stream(self) -> Iterator[WatchEvent]:
        headers = {"Last-Event-ID": self._seen} if self._seen else {}
        left = self._left()
        silence = SILENCE_S if left is None else min(SILENCE_S, left + 0.1)
        with self.client.stream(
            *self.path, query={"watch": True}, accept=STREAM, headers=headers, silence_s=silence
        ) as answer:
            if not answer.headers.get("Content-Type", "").startswith(STREAM):
                self.fallback = "this console has no such stream"
                return
            for event in parse_events(answer):
                self._seen = event.id or self._seen
                if event.name != "error" and event.data:
                    yield event
                self._left()

    def _poll(self) -> Iterator[dict[str, Any]]:
        etag, last_body, pause_s = "", None, POLL_S
        while True:
            try:
                answer = self.client.send("GET", *self.path, if_none_match=etag)
            except NotFound:
                return
            if answer.status != httpx.codes.NOT_MODIFIED and answer.body != last_body:
                etag, last_body, pause_s = answer.etag, answer.body, POLL_S
                yield answer.body
            self._pause(pause_s)
            if self.client.live:  # in-process: polling costs no network requests
                pause_s = min(pause_s * 1.5, MAX_POLL_S)

    def _pause(self, seconds: float) -> None:
        left = self._left()
        self.client.pause(seconds if left is None else min(seconds, left))

    def _left(self) -> float | None:
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimedOut(f"Not within {self.timeout_s:g} s.")
        return left


def parse_events(answer: httpx.Response) -> Iterator[WatchEvent]:
    """Parse a stream per the HTML standard; comments (heartbeats) become events without data."""
    event, lines = WatchEvent(), list[str]()
    for line in _split_lines(answer):
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if lines or event.id:
                event.data = "\n".join(lines)
                yield event
            event, lines = WatchEvent(), []
        elif not name:
            yield WatchEvent(name="comment")
        elif name == "data":
            lines.append(value)
        elif name == "event":
            event.name = value
        elif name == "id":
            event.id = value


def _split_lines(answer: httpx.Response) -> Iterator[str]:
    """Split at the three line ends of the standard; `iter_lines` splits at more, which may be in
    text.
    """
    pending = ""
    for part in answer.iter_text():
        pending += part
        held = "\r" if pending.endswith("\r") else ""  # "\n" may follow in the next chunk
        *whole, pending = _ENDS.split(pending.removesuffix("\r"))
        pending += held
        yield from whole
