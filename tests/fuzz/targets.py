"""Invariants of the router's readers, one function each.

The first bytes of the input are control data (split points, the worker's response), the rest is
parsed.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import httptools
import orjson

from routing.engine.config import ConfigError, SessionKey, parse, parse_keys
from routing.engine.errors import Refusal
from routing.engine.fleet.worker_connection import WorkerConnection
from routing.engine.http import head_cache, http1
from routing.engine.http.http1 import ChunkedBody, ProtocolError
from routing.engine.prompt.identity import Identifier, Identity
from routing.engine.tokens import usage
from routing.engine.tokens.usage import BytesPerToken
from tests.fuzz import reference
from tests.fuzz.splitting import splits
from tests.fuzz.wires import RouterHarness, Wire

_LLHTTP_METHODS = frozenset(
    b"DELETE GET HEAD POST PUT OPTIONS PATCH COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH UNLOCK"
    b" BIND REBIND UNBIND ACL REPORT MKACTIVITY CHECKOUT MERGE M-SEARCH NOTIFY SUBSCRIBE"
    b" UNSUBSCRIBE PURGE MKCALENDAR LINK UNLINK QUERY".split()
)
_ANSWERS = (
    b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b"a\r\ndata: {}\n\n\r\n0\r\n\r\n",
    b"HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 204 Empty\r\n\r\n",
)


def _same(name: str, outcomes: list[Any]) -> Any:
    for other in outcomes[1:]:
        assert other == outcomes[0], f"{name}: {other!r} is not {outcomes[0]!r}"
    return outcomes[0]


# -- requests


def _forwarded(pool: Any) -> list[reference.ParsedRequest]:
    """Return the requests forwarded to the worker; all must be complete."""
    found: list[reference.ParsedRequest] = []
    for connection in pool.connections:
        requested, rest = reference.requests(bytes(connection.transport.written))
        assert rest in ("", "closed") or connection.transport.aborted, rest
        found += requested
    return found


def _serve(
    harness: RouterHarness, answer: bytes, served: dict[int, int], seen: dict[int, int]
) -> None:
    """Answer every complete request that has reached the worker, including follow-ups."""
    again = True
    while again:
        again = False
        harness.turn()
        for index, connection in enumerate(list(harness.pool.connections)):
            written = connection.transport.written
            if seen.get(index) == len(written) or connection.transport.closing:
                continue
            seen[index] = len(written)
            requested, _ = reference.requests(bytes(written))
            if served.get(index, 0) < len(requested):
                method = requested[served.get(index, 0)].method
                served[index] = served.get(index, 0) + 1
                head, end, _ = answer.partition(b"\r\n\r\n")
                connection.data_received(head + end if method == b"HEAD" else answer)
                again = True


class _Outcome(NamedTuple):
    handled: list[tuple[bytes, bytes, bytes | None]]
    forwarded: list[reference.ParsedRequest]
    statuses: list[int]
    ended: bool

    def same(self) -> Any:
        """Return what must not depend on the split. Whether a body is buffered or streamed may
        depend on it, and so whether a request starts before its end turns out to be invalid.
        """
        framing = (b"content-length", b"transfer-encoding")
        sent = [
            (*one[:2], [pair for pair in one.headers if pair[0] not in framing], one.body)
            for one in self.forwarded
        ]
        return sent, self.statuses, self.ended


def _send_parts(parts: list[bytes], answer: bytes) -> _Outcome:
    harness = RouterHarness()
    served: dict[int, int] = {}
    seen: dict[int, int] = {}
    harness.feed(parts, lambda: _serve(harness, answer, served, seen))
    forwarded = _forwarded(harness.pool)
    handled = list(harness.watched.handled)
    methods = [head.method for head in harness.watched.heads]
    out = bytes(harness.out.written)
    ended = harness.out.closing or harness.out.eof
    harness.end()
    assert (harness.worker.in_flight, harness.worker.load) == (0, 0), "load is left behind"
    found, rest = reference.answers(out, [*methods, b"GET"], ended)
    assert rest in ("", "nothing", "closed", "ended"), rest
    assert all(one.whole for one in found)
    # The text of a rejection may depend on how much of the input had arrived.
    statuses = [400 if one.status in (400, 408, 413, 431) else one.status for one in found]
    return _Outcome(handled, forwarded, statuses, ended)


def _path(target: bytes) -> bytes:
    """Return the path of an absolute target."""
    if target.startswith(b"/") or target == b"*":
        return target
    rest = re.sub(rb"(?i)\Ahttps?://[^/?]*", b"", target)
    return rest if rest.startswith(b"/") else b"/" + rest


def _check_worker_reads(requested: reference.ParsedRequest) -> None:
    """Check that llhttp, used by uvicorn, reads the same request."""
    if requested.method not in _LLHTTP_METHODS:
        return
    head = b"".join(b"%b: %b\r\n" % pair for pair in requested.headers)
    wire = b"%b %b HTTP/1.1\r\n%b\r\n" % (requested.method, requested.target, head)
    chunked = any(name == b"transfer-encoding" for name, _ in requested.headers)
    body = requested.body
    if chunked:
        body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"

    class Seen:
        body = b""
        complete = 0

        def on_body(self, data: bytes) -> None:
            self.body += data

        def on_message_complete(self) -> None:
            self.complete += 1

    seen = Seen()
    parser = httptools.HttpRequestParser(seen)
    with contextlib.suppress(httptools.HttpParserUpgrade):
        parser.feed_data(wire + body)
    assert (seen.body, seen.complete) == (requested.body, 1)


def requests(data: bytes) -> None:
    """Client bytes, pipelined and arbitrarily split, give the requests that h11 reads."""
    answer = _ANSWERS[data[0] & 3] if data else _ANSWERS[0]
    steer, wire = data[1:5], data[5:]
    outcomes = [_send_parts(parts, answer) for parts in splits(wire, steer)]
    _same("requests", [outcome.same() for outcome in outcomes])
    handled, forwarded = outcomes[0][:2]
    theirs, _ = reference.requests(wire)
    for mine, other in zip(handled, theirs, strict=False):
        assert mine[0] == other.method
        assert mine[1] == _path(other.target)
        assert mine[2] in (None, other.body)
    bodies = {(mine[0], mine[1], other.body) for mine, other in zip(handled, theirs, strict=False)}
    for requested in forwarded:
        _check_worker_reads(requested)
        names = [name for name, _ in requested.headers]
        assert len(set(names) & {b"content-length", b"transfer-encoding"}) <= 1
        assert names.count(b"host") == names.count(b"x-request-id") == 1
        if len(theirs) >= len(handled):
            assert (requested.method, requested.target, requested.body) in bodies
    for name in (b"connection", b"keep-alive", b"upgrade", b"te", b"trailer", b"expect"):
        assert all(name != found for requested in forwarded for found, _ in requested.headers)


# -- heads


def _read(read: Callable[[bytes], Any], wire: bytes) -> Any:
    """Return every field read, or the rejection."""
    try:
        head = read(wire)
    except (Refusal, ProtocolError) as error:
        return str(error)
    found = {name: getattr(head, name) for name in dir(head) if not name.startswith("_")}
    return {name: value for name, value in found.items() if not callable(value)}


def heads(data: bytes) -> None:
    """A cached head equals a parsed one, whatever was read before."""
    pairs = (
        (head_cache.read_request, http1.parse_request),
        (head_cache.read_response, http1.parse_response),
    )
    remembering, reading = pairs[data[0] & 1 if data else 0]
    wire = data[2:]
    other = re.sub(rb"(?<=: )\d+", b"%d" % (data[1] if len(data) > 1 else 0), wire)
    for head in (wire, other, wire, wire.swapcase(), wire):
        assert _read(remembering, head) == _read(reading, head)


# -- chunks


def _chunks(parts: list[bytes]) -> tuple[bytes, int, str]:
    body = ChunkedBody()
    payload, used = b"", 0
    for part in parts:
        if body.done:
            break
        try:
            taken = body.feed(part)
        except ProtocolError:
            return b"", -1, "refused"
        assert 0 <= taken <= len(part)
        assert taken == len(part) or body.done, "bytes were left though the body goes on"
        payload += b"".join(body.pieces)
        used += taken
        assert not (body.between and body.done)
    return payload, used, "whole" if body.done else "open"


def chunks(data: bytes) -> None:
    """A chunked body is independent of the split and equals h11's."""
    steer, wire = data[:4], data[4:]
    payload, used, state = _same("chunks", [_chunks(parts) for parts in splits(wire, steer)])
    head = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
    theirs, _ = reference.requests(head + wire)
    if state == "whole":
        assert theirs, "h11 sees no end"
        assert theirs[0].body == payload
        again, _ = reference.requests(head + wire[:used])
        assert again[:1] == theirs[:1]
        assert not reference.requests(head + wire[: used - 1])[0], "the end is not where it was"
    if state == "open":
        assert not theirs or b"\n" in wire.replace(b"\r\n", b""), "h11 sees an end"


# -- answers

_ASKED = (
    (b"POST", b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"),
    (b"GET", b"GET /v1/responses/x HTTP/1.1\r\nhost: a\r\n\r\n"),
    (b"HEAD", b"HEAD /x HTTP/1.1\r\nhost: a\r\n\r\n"),
    (b"POST", b"POST /v1/completions HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}"),
)


def _answering(
    requested: bytes, parts: list[bytes], clean: bool
) -> tuple[bytes, bool, RouterHarness]:
    """Return what the client received, and whether its connection was reset."""
    harness = RouterHarness()
    harness.client.data_received(requested)
    harness.turn()
    (connection,) = harness.pool.connections
    assert isinstance(connection, WorkerConnection)
    wire = connection.transport
    assert isinstance(wire, Wire)  # set by RouterHarness
    for part in parts:
        if part and not wire.closing:
            connection.data_received(part)
    reused = connection in harness.pool.idle
    if reused:
        harness.pool.idle.clear()
    elif not wire.aborted:
        connection.connection_lost(None if clean or wire.closing else ConnectionResetError())
    return bytes(harness.out.written), harness.out.aborted, harness


def _as_seen(method: bytes, requested: bytes, parts: list[bytes], clean: bool) -> Any:
    out, reset, harness = _answering(requested, parts, clean)
    error = harness.router.ring.newest(1)[0].error
    ended = harness.out.closing and not reset
    closed = harness.out.closing
    busy = harness.client._exchange is not None
    harness.end()
    assert (harness.worker.in_flight, harness.worker.load) == (0, 0), "load is left behind"
    assert not busy, "the answer's end was not noticed"
    found, rest = reference.answers(out, [method], ended)
    (answer,) = found
    if error in ("", "upstream_5xx"):
        assert answer.whole, rest
        return answer, out
    if error == "broken_stream":
        assert not answer.whole, "an answer which broke off looks whole"
        assert closed
    else:
        assert answer.whole
        assert answer.status in (502, 504), "an error of our own"
    return "failed"


def answers(data: bytes) -> None:
    """A response is forwarded completely or fails visibly, independent of the split."""
    pick = data[0] if data else 0
    method, requested = _ASKED[pick & 3]
    clean = bool(pick & 4)
    steer, wire = data[1:5], data[5:]
    outcomes = [_as_seen(method, requested, parts, clean) for parts in splits(wire, steer)]
    outcome = _same("answers", outcomes)
    if outcome == "failed":
        return
    theirs, rest = reference.answers(wire, [method], clean)
    mine = outcome[0]
    if theirs and not rest.startswith("illegal"):
        assert (mine.status, mine.body) == (theirs[0].status, theirs[0].body), rest
        assert theirs[0].whole, rest


# -- request bodies and files

_BLOCK_BYTES = 16


def _fresh() -> Identifier:
    return Identifier(b"secret", _BLOCK_BYTES, SessionKey("body", "user"), b"show", BytesPerToken())


_IDENTIFIER = _fresh()  # caches hashes
_PATHS = (
    b"/v1/chat/completions", b"/v1/completions", b"/v1/responses", b"/v1/messages",
    b"/v1/embeddings", b"/other",
)  # fmt: skip


def _driven(reading: Coroutine[Any, Any, Identity]) -> Identity:
    """Return the coroutine's result without an event loop: it only awaits its next turn."""
    while True:
        try:
            reading.send(None)
        except StopIteration as end:
            return end.value


def bodies(data: bytes) -> None:
    """A request body never raises, gives the same result again, and a longer chat shares its
    prefix.
    """
    path = _PATHS[data[0] % len(_PATHS)] if data else _PATHS[0]
    body = data[1:]
    facts = _IDENTIFIER.read(path, body, b"", True)
    for other in (_IDENTIFIER, _fresh()):
        again = other.read(path, bytes(bytearray(body)), b"", True)
        assert facts.facts.chain == again.facts.chain
        assert (facts.model, facts.facts.session) == (again.model, again.facts.session)
    assert facts.facts.tokens >= 0
    assert facts.model.encode("utf-8", "surrogatepass") is not None
    _IDENTIFIER.scan(body, b"")
    with contextlib.suppress(Refusal):
        large = _driven(_IDENTIFIER.read_large(path, body, b"", True))
        assert (large.model, large.facts.chain) == (facts.model, facts.facts.chain)
    with contextlib.suppress(orjson.JSONDecodeError, TypeError, UnicodeError, RecursionError):
        _check_next_turn(path, orjson.loads(body), facts.facts.chain)
    text = body.decode("latin-1")
    before = "!" if text[:1] == "?" else "?"
    prompts = [orjson.dumps({"prompt": part}) for part in (text, text[:-1], before + text)]
    whole, shorter, other_start = (
        _IDENTIFIER.read(b"/v1/completions", prompt, b"", True).facts.chain for prompt in prompts
    )
    assert len(whole) == len(text.encode()) // _BLOCK_BYTES
    assert shorter == whole[: len(text[:-1].encode()) // _BLOCK_BYTES]
    assert not set(other_start[:1]) & set(whole)


def _check_next_turn(path: bytes, data: Any, hashes: list[int]) -> None:
    """Check that appending a message keeps the blocks before it."""
    messages = data.get("messages") if type(data) is dict else None
    if type(messages) is not list or not messages or type(messages[0]) is int or not hashes:
        return
    data["messages"] = [*messages, {"role": "user", "content": "more"}]
    longer = _IDENTIFIER.read(path, orjson.dumps(data), b"", True)
    if path in (b"/v1/chat/completions", b"/v1/messages"):
        assert longer.facts.chain[: len(hashes)] == hashes


def tails(data: bytes) -> None:
    """A response tail is read as written, without data of a longer one before it."""
    found = usage.read_usage(data)
    if found is not None:
        for number in found:
            assert number is None or b"%d" % number in re.sub(rb"(?<!\d)0+(?=\d)", b"", data)
    with contextlib.suppress(json.JSONDecodeError, UnicodeDecodeError, RecursionError, ValueError):
        _check_usage(json.loads(data), data)


def _check_usage(data: Any, text: bytes) -> None:
    """Check the usage of a whole JSON response with a single top-level usage."""
    top = data.get("usage") if type(data) is dict else None
    if type(top) is not dict or text.count(b'"usage"') != 1 or len(text) > 2000:
        return
    if any(type(value) is not int for value in top.values()) or b"\\" in text:
        return
    found = usage.read_usage(text)
    if set(top) == {"prompt_tokens", "completion_tokens"} and text.count(b"_tokens") == 2:
        wanted = (top["prompt_tokens"], top["completion_tokens"])
        if all(0 <= value < 10**12 for value in wanted):
            assert found is not None
            assert (found.prompt, found.completion) == wanted


def configs(data: bytes) -> None:
    """A configuration or key file is accepted, or rejected with a reason."""
    try:
        value = orjson.loads(data[1:])
    except orjson.JSONDecodeError:
        return
    refused: ConfigError | None = None
    try:
        if data[0] & 1:
            parse_keys(value)
        else:
            if type(value) is dict:  # no fuzzing of file names
                value = {key: item for key, item in value.items() if not key.endswith("_file")}
            parse(value, Path("/nonexistent"))
    except ConfigError as error:
        refused = error
    if refused is not None:
        assert refused.field
        assert refused.remedy


TARGETS: dict[str, Callable[[bytes], None]] = {
    "requests": requests,
    "heads": heads,
    "answers": answers,
    "chunks": chunks,
    "bodies": bodies,
    "tails": tails,
    "configs": configs,
}
