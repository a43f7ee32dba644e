"""Insert fields into an answer: a JSON object, or the events of a stream.

Only for answers to requests with diagnostics. What cannot be read passes unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import orjson

MESSAGES, RESPONSES = b"/v1/messages", b"/v1/responses"
MAX_HELD_BYTES = 16 * 2**20  # longer answers and events pass unchanged
_ID_BYTES = 2048  # searched for the ID of an answer
_ID = re.compile(rb'"id":\s*"([!-~]{1,128}?)"')
_EVENT_END = re.compile(rb"\r?\n\r?\n")
_DATA = re.compile(rb"^data: ?(.*?)\r?$", re.MULTILINE)
_DONE = b"data: [DONE]"
# Parts of the events that may be the last ones with data.
_LAST = {
    MESSAGES: re.compile(rb'"type":\s*"message_(?:delta|stop)"'),
    RESPONSES: re.compile(rb'"type":\s*"response\.(?:completed|incomplete|failed)"'),
}
_LAST_CHOICE = re.compile(rb'"finish_reason":\s*"|"usage":\s*\{')
_START = re.compile(rb'"type":\s*"message_start"')


def find_answer_id(begin: bytes) -> str:
    """Return the ID of an answer from its first bytes, or ""."""
    match = _ID.search(begin, 0, _ID_BYTES)
    return "" if match is None else match[1].decode("latin-1")


def add_fields(body: bytes, fields: Mapping[str, Any]) -> bytes:
    """Add fields to a JSON object; other bodies are returned as they are."""
    end = body.rstrip()
    if not fields or not end.startswith(b"{") or not end.endswith(b"}"):
        return body
    comma = b"" if end[1:-1].isspace() or len(end) == 2 else b","
    return b"%b%b%b" % (end[:-1], comma, orjson.dumps(fields)[1:])


class EventAnnotator:
    """Pass the events of a stream on, and hold the last ones until their fields are known.

    `opening`: fields of Anthropic's first event. The end of a stream follows its last event with
    data at once, so that holding it delays nothing.
    """

    def __init__(self, path: bytes, opening: Mapping[str, Any]) -> None:
        self._path = path
        self._opening = opening
        self._last = _LAST.get(path, _LAST_CHOICE)
        self._held: list[bytes] = []
        self._partial = b""
        self._off = False

    @property
    def between(self) -> bool:
        return not self._partial

    def feed(self, pieces: list[bytes]) -> list[bytes]:
        """Return the events that go on now."""
        if self._off:
            return pieces
        out: list[bytes] = []
        data = self._partial + b"".join(pieces)
        start = 0
        for end in _EVENT_END.finditer(data):
            self._take(data[start : end.end()], out)
            start = end.end()
        self._partial = data[start:]
        if len(self._partial) + sum(map(len, self._held)) > MAX_HELD_BYTES:
            out += self.release()
            self._off = True
        return out

    def _take(self, event: bytes, out: list[bytes]) -> None:
        if self._opening and _START.search(event):
            event = _insert(event, self._opening, "message")
            self._opening = {}
        if event.startswith(_DONE) and self._held:
            self._held.append(event)
        elif self._last.search(event):
            if self._path != MESSAGES:
                out += self._held
                self._held = []
            self._held.append(event)
        else:
            out += self._held
            self._held = []
            out.append(event)

    def release(self) -> list[bytes]:
        """Return what is held, unchanged."""
        held_items = [*self._held, self._partial] if self._partial else self._held
        self._held, self._partial = [], b""
        return held_items

    def end(self, fields: Mapping[str, Any]) -> list[bytes]:
        """Return what is held with the fields in its first event."""
        released = self.release()
        if released and fields:
            inside = "response" if self._path == RESPONSES else ""
            released[0] = _insert(released[0], fields, inside)
        return released


def _insert(event: bytes, fields: Mapping[str, Any], inside: str) -> bytes:
    """Add fields to an event's object, or to an object in it."""
    lines = _DATA.findall(event)
    try:
        data = orjson.loads(b"\n".join(lines)) if lines else None
    except orjson.JSONDecodeError:
        return event
    target = data.get(inside) if inside and type(data) is dict else data
    if type(target) is not dict:
        return event
    target.update(fields)
    name, begin, _ = event.partition(b"data:")
    try:
        return b"%b%b %b\n\n" % (name, begin, orjson.dumps(data))
    except TypeError:  # nested deeper than it can be written
        return event
