"""Reference HTTP/1.1 parser: h11.

h11 accepts more than the router in places (bare line feeds, duplicate equal lengths), so results
are compared only if the router accepted the message.
"""

from __future__ import annotations

from typing import NamedTuple

import h11

_MAX_BYTES = 1 << 20


class ParsedRequest(NamedTuple):
    method: bytes
    target: bytes
    headers: list[tuple[bytes, bytes]]
    body: bytes


class ParsedResponse(NamedTuple):
    status: int
    body: bytes
    whole: bool


def requests(data: bytes) -> tuple[list[ParsedRequest], str]:
    """Return the complete requests and why parsing stopped ("" at the end of the data)."""
    found: list[ParsedRequest] = []
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_BYTES)
    reader.receive_data(data)
    try:
        while True:
            event = reader.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return found, "" if event is h11.NEED_DATA else "paused"
            if isinstance(event, h11.Request):
                requested = ParsedRequest(event.method, event.target, list(event.headers), b"")
            elif isinstance(event, h11.Data):
                requested = requested._replace(body=requested.body + bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                found.append(requested)
                reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                reader.send(h11.EndOfMessage())
                if reader.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                    return found, "closed"
                reader.start_next_cycle()
            else:
                return found, "closed"
    except h11.ProtocolError as error:
        return found, str(error)


def answers(data: bytes, methods: list[bytes], ended: bool) -> tuple[list[ParsedResponse], str]:
    """Return the responses to requests of these methods; `ended`: connection closed after
    `data`."""
    found: list[ParsedResponse] = []
    reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_BYTES)
    reader.receive_data(data)
    if ended:
        reader.receive_data(b"")
    try:
        for method in methods:
            reader.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
            reader.send(h11.EndOfMessage())
            answer = _answer(reader, found)
            if answer:
                return found, answer
            if reader.states != {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
                return found, "closed"
            reader.start_next_cycle()
    except h11.ProtocolError as error:
        ended_early = "ConnectionClosed" in str(error) or "peer " in str(error)
        return found, "ended" if ended_early else str(error)
    rest = reader.trailing_data[0]
    return found, f"{len(rest)} bytes nobody asked for" if rest else ""


def _answer(reader: h11.Connection, found: list[ParsedResponse]) -> str:
    """Read one response into `found`; return why it is incomplete, or ""."""
    begun = False
    while True:
        event = reader.next_event()
        if isinstance(event, h11.InformationalResponse):
            continue
        if isinstance(event, h11.Response):
            found.append(ParsedResponse(event.status_code, b"", False))
            begun = True
        elif isinstance(event, h11.Data):
            found[-1] = found[-1]._replace(body=found[-1].body + bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            found[-1] = found[-1]._replace(whole=True)
            return ""
        else:
            return "unfinished" if begun else "nothing"
