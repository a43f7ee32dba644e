"""Request heads and chunked bodies: complete, at any split, and with trailing bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.engine.errors import Refusal
from routing.engine.http.http1 import (
    FREE_CHUNKS,
    MAX_LINE_BYTES,
    MIN_CHUNK_BYTES,
    ChunkedBody,
    ProtocolError,
    parse_request,
    parse_response,
)


def request(*lines: str) -> bytes:
    return "".join(line + "\r\n" for line in lines).encode("latin-1")


def test_a_plain_request() -> None:
    head = parse_request(
        request(
            "POST /v1/chat/completions?x=1 HTTP/1.1",
            "Host: a",
            "Content-Length: 12",
            "Authorization:  Bearer k ",
            "X-Request-ID: abc",
            "Accept: */*",
        )
    )
    assert (head.method, head.path) == (b"POST", b"/v1/chat/completions")
    assert head.target == b"/v1/chat/completions?x=1"
    assert (head.length, head.chunked, head.keep_alive) == (12, False, True)
    assert (head.authorization, head.request_id) == (b"Bearer k", b"abc")
    assert head.fields == b"Accept: */*\r\n"
    assert head.get(b"accept") == b"*/*"
    assert head.get(b"other") is None


def test_connection_headers_are_removed() -> None:
    head = parse_request(
        request(
            "GET / HTTP/1.1",
            "host: a",
            "connection: Keep-Alive, X-Hop",
            "keep-alive: timeout=5",
            "x-hop: 1",
            "te: trailers",
            "upgrade: h2c",
            "proxy-authorization: secret",
            "x-emberline-pin: w1",
            "x-end: 1",
        )
    )
    assert head.fields == b"x-end: 1\r\n"
    assert head.pin == b"w1"
    assert head.keep_alive


@pytest.mark.parametrize(
    ("lines", "keep_alive"),
    [
        (("GET / HTTP/1.1", "host: a"), True),
        (("GET / HTTP/1.1", "host: a", "connection: close"), False),
        (("GET / HTTP/1.1", "host: a", "connection: CLOSE, x"), False),
        (("GET / HTTP/1.1", "host: a", "connection: closed"), True),
        (("GET / HTTP/1.0",), False),
    ],
)
def test_keep_alive(lines: tuple[str, ...], keep_alive: bool) -> None:
    assert parse_request(request(*lines)).keep_alive is keep_alive


@pytest.mark.parametrize(
    ("target", "path"),
    [("/a?b", b"/a"), ("http://h:1/a?b", b"/a"), ("HTTPS://h", b"/"), ("http://h?q", b"/")],
)
def test_targets(target: str, path: bytes) -> None:
    assert parse_request(request(f"GET {target} HTTP/1.1", "host: a")).path == path


def test_invalid_request_id_is_replaced() -> None:
    head = parse_request(request("GET / HTTP/1.1", "host: a", "x-request-id: a b"))
    assert head.request_id == b""


REFUSED = {
    "both lengths": (
        "POST / HTTP/1.1", "host: a", "content-length: 1", "transfer-encoding: chunked",
    ),
    "lengths in the other order": (
        "POST / HTTP/1.1", "host: a", "transfer-encoding: chunked", "content-length: 1",
    ),
    "two lengths": ("POST / HTTP/1.1", "host: a", "content-length: 1", "content-length: 1"),
    "list of lengths": ("POST / HTTP/1.1", "host: a", "content-length: 1, 1"),
    "signed length": ("POST / HTTP/1.1", "host: a", "content-length: +1"),
    "hex length": ("POST / HTTP/1.1", "host: a", "content-length: 0x1"),
    "empty length": ("POST / HTTP/1.1", "host: a", "content-length:"),
    "unicode digit": ("POST / HTTP/1.1", "host: a", "content-length: \xb2"),
    "huge length": ("POST / HTTP/1.1", "host: a", "content-length: " + "9" * 16),
    "unknown coding": ("POST / HTTP/1.1", "host: a", "transfer-encoding: gzip, chunked"),
    "two codings": (
        "POST / HTTP/1.1", "host: a", "transfer-encoding: chunked", "transfer-encoding: chunked",
    ),
    "coding with vertical tab": ("POST / HTTP/1.1", "host: a", "transfer-encoding: \x0bchunked"),
    "coding in 1.0": ("POST / HTTP/1.0", "transfer-encoding: chunked"),
    "folded header": ("GET / HTTP/1.1", "host: a", "x: 1", " folded"),
    "space before colon": ("GET / HTTP/1.1", "host: a", "content-length : 1"),
    "bare line feed": ("GET / HTTP/1.1", "host: a", "x: 1\ncontent-length: 5"),
    "bare carriage return": ("GET / HTTP/1.1", "host: a", "x: 1\rcontent-length: 5"),
    "nul": ("GET / HTTP/1.1", "host: a", "x: \x00"),
    "no name": ("GET / HTTP/1.1", "host: a", ": x"),
    "no colon": ("GET / HTTP/1.1", "host: a", "x"),
    "no host": ("GET / HTTP/1.1",),
    "two hosts": ("GET / HTTP/1.1", "host: a", "host: b"),
    "two authorizations": ("GET / HTTP/1.1", "host: a", "authorization: a", "authorization: b"),
    "two API keys": ("GET / HTTP/1.1", "host: a", "x-api-key: a", "x-api-key: b"),
    "no version": ("GET /", "host: a"),
    "version 2": ("GET / HTTP/2.0", "host: a"),
    "version 1.2": ("GET / HTTP/1.2", "host: a"),
    "two spaces": ("GET  / HTTP/1.1", "host: a"),
    "connect": ("CONNECT h:1 HTTP/1.1", "host: a"),
    "trace": ("TRACE / HTTP/1.1", "host: a"),
    "fragment": ("GET /a#b HTTP/1.1", "host: a"),
    "websocket": ("GET / HTTP/1.1", "host: a", "upgrade: WebSocket"),
    "no path": ("GET x HTTP/1.1", "host: a"),
    "star": ("GET * HTTP/1.1", "host: a"),
    "other scheme": ("GET ftp://h/ HTTP/1.1", "host: a"),
    "expectation": ("POST / HTTP/1.1", "host: a", "expect: money"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_ambiguous_requests_are_rejected(case: str) -> None:
    with pytest.raises(Refusal) as caught:
        parse_request(request(*REFUSED[case]))
    assert caught.value.kind.status in (400, 417, 501, 505)


def test_a_response() -> None:
    head = parse_response(
        request(
            "HTTP/1.1 200 OK",
            "Content-Type: text/event-stream; charset=utf-8",
            "Transfer-Encoding: chunked",
            "X-Request-Id: theirs",
            "Connection: keep-alive",
            "server: uvicorn",
        )
    )
    assert (head.status, head.chunked, head.events, head.length) == (200, True, True, -1)
    assert head.status_line == b"HTTP/1.1 200 OK"
    assert head.fields == (b"Content-Type: text/event-stream; charset=utf-8\r\nserver: uvicorn\r\n")
    assert parse_response(request("HTTP/1.1 200")).status == 200
    old = parse_response(request("HTTP/1.0 200 OK"))
    assert (old.keep_alive, old.status_line) == (False, b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    "lines",
    [
        ("HTTP/1.1 200 OK", "content-length: 1", "content-length: 2"),
        ("HTTP/1.1 200 OK", "content-length: 1", "transfer-encoding: chunked"),
        ("HTTP/1.1 200 OK", "transfer-encoding: gzip"),
        ("HTTP/1.0 200 OK", "transfer-encoding: chunked"),
        ("HTTP/1.1 999 OK",),
        ("HTTP/2 200 OK",),
        ("nonsense",),
        ("HTTP/1.1 200 OK", " folded"),
    ],
)
def test_worker_that_violates_http_is_rejected(lines: tuple[str, ...]) -> None:
    with pytest.raises(ProtocolError):
        parse_response(request(*lines))


CHUNKED: dict[bytes, bytes] = {
    b"0\r\n\r\n": b"",
    b"5\r\nhello\r\n0\r\n\r\n": b"hello",
    b"5\r\nhello\r\n6;ext=1\r\n world\r\n0\r\n\r\n": b"hello world",
    b"2\r\n\r\n\r\n0\r\n\r\n": b"\r\n",
    b"A\r\n0123456789\r\n000\r\nx-trailer: 1\r\nother: 2\r\n\r\n": b"0123456789",
    b"1 \r\na\r\n0 \r\n\r\n": b"a",
}


def feed(parts: list[bytes]) -> tuple[bytes, bytes, bool]:
    """Payload, what is left over, done."""
    body = ChunkedBody()
    payload = rest = b""
    for part in parts:
        if body.done:
            rest += part
            continue
        used = body.feed(part)
        assert 0 <= used <= len(part)
        payload += b"".join(body.pieces)
        rest += part[used:]
    return payload, rest, body.done


@pytest.mark.parametrize("wire", CHUNKED)
def test_chunked_bodies_parse_at_any_split(wire: bytes) -> None:
    payload = CHUNKED[wire]
    tail = b"GET / HTTP/1.1\r\n"
    assert feed([wire]) == (payload, b"", True)
    assert feed([wire + tail]) == (payload, tail, True)
    assert feed([wire[at : at + 1] for at in range(len(wire))]) == (payload, b"", True)
    for at in range(len(wire)):
        assert feed([wire[:at], wire[at:] + tail]) == (payload, tail, True)
        assert not feed([wire[:at]])[2], "a broken body must never look whole"


@pytest.mark.parametrize(
    "wire",
    [
        b"5\nhello\r\n0\r\n\r\n",
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n",
        b"-1\r\n",
        b"5_0\r\n",
        b"\r\n",
        b" 5\r\nhello\r\n",
        b"5\r\nhelloX\r\n0\r\n\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"5\r\nhello0\r\n\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"0\r\nx: 1\n\r\n",
        b"0\r\nContent-Length: 1\r\n\r\n",
        b"0\r\ntransfer-encoding: chunked\r\n\r\n",
        b"f" * 16 + b"\r\n",
        b"5;" + b"x" * MAX_LINE_BYTES + b"\r\n",
        b"5;" + b"x" * MAX_LINE_BYTES,
        b"0\r\n" + b"x: 1\r\n" * 3000,
    ],
)
def test_invalid_chunks_are_rejected_at_any_split(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        feed([wire])
    with pytest.raises(ProtocolError):
        feed([wire[at : at + 1] for at in range(len(wire))])


def test_endless_tiny_chunks_are_rejected() -> None:
    """Each chunk costs its reader the same, so a body may not consist of tiny ones for ever."""
    tiny = b"1\r\na\r\n"
    payload, rest, done = feed([tiny * FREE_CHUNKS, b"0\r\n\r\n"])
    assert (payload, rest, done) == (b"a" * FREE_CHUNKS, b"", True)
    wire = tiny * (FREE_CHUNKS * MIN_CHUNK_BYTES // (MIN_CHUNK_BYTES - 1) + 1)
    for size in (len(wire), 65_536, 13, 6):
        with pytest.raises(ProtocolError, match="less than 16 bytes"):
            feed([wire[at : at + size] for at in range(0, len(wire), size)])


def test_chunks_of_ordinary_size_are_unlimited() -> None:
    body = ChunkedBody()
    for _ in range(FREE_CHUNKS * 2):
        assert body.feed(b"10\r\n0123456789abcdef\r\n") == 22
    assert not body.done


def test_chunk_size_line_limit_is_independent_of_splits() -> None:
    """Also where the chunk comes whole, first in its read or behind another."""
    whole = b"2;" + b"x" * MAX_LINE_BYTES + b"\r\nhi\r\n"
    for wire in (whole, b"1\r\na\r\n" + whole):
        with pytest.raises(ProtocolError, match="too long"):
            feed([wire])


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.binary(max_size=5),
    st.lists(st.integers(1, 60), max_size=30),
)
def test_bodies_parse_at_any_split(chunks: list[bytes], tail: bytes, cuts: list[int]) -> None:
    wire = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    data = wire + tail
    parts = []
    for cut in cuts:
        parts.append(data[:cut])
        data = data[cut:]
    assert feed([*parts, data]) == (b"".join(chunks), tail, True)


@given(
    st.sampled_from((1, 15, 16, 17, 255, 256, 4079, 4095, 4096, 5000)),
    st.sampled_from((b"%x\r\n", b"%X\r\n", b"0%x\r\n", b"%x;a\r\n", b"%x\n")),
    st.sampled_from((b"\r\n", b"\r\nx", b"\n\n", b"\r", b"")),
    st.integers(-1, 1),
)
def test_whole_chunk_is_recognized_only_where_it_is_one(
    size: int, line: bytes, end: bytes, more: int
) -> None:
    wire = line % size + b"y" * (size + more) + end
    body = ChunkedBody()
    piece = body.whole(wire)
    if piece:
        assert piece == b"y" * size
        assert body.between
        other = ChunkedBody()
        assert (other.feed(wire), other.pieces) == (len(wire), [piece])
    assert bool(piece) == (16 <= size < 4096 and wire == b"%x\r\n%b\r\n" % (size, b"y" * size))


def test_no_chunk_is_whole_inside_another() -> None:
    event = b"10\r\n0123456789abcdef\r\n"
    body = ChunkedBody()
    body.feed(b"30\r\n0")
    assert (body.whole(event), body.between) == (b"", False)
    assert (body.feed(event), body.pieces) == (len(event), [event])


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_protocol_errors(data: bytes) -> None:
    for parse in (parse_request, parse_response):
        with contextlib.suppress(Refusal, ProtocolError):
            parse(data)
    with contextlib.suppress(ProtocolError):
        ChunkedBody().feed(data)


def test_header_of_spaces_is_parsed_in_linear_time() -> None:
    """Backtracking over 30,000 spaces would take minutes; the suite's timeout would name it."""
    with pytest.raises(Refusal):
        parse_request(b"GET / HTTP/1.1\r\nhost: a\r\nx:" + b" " * 30_000 + b"\x00\r\n")
