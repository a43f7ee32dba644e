"""HTTP/1.1 parser without I/O: heads and chunked bodies.

Strict against request smuggling: ambiguous lengths, folded headers, bare line feeds, spaces before
a colon and unknown transfer codings are rejected. Hop-by-hop headers are removed.
"""

from __future__ import annotations

import re
from typing import Final

from routing.engine.errors import Refusal

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_FIELDS: Final = rb"((?:" + _TOKEN + rb":[^\x00-\x08\x0a-\x1f\x7f]*+\r\n)*+)"
# No "#" in a target: parsers disagree about it.
_REQUEST: Final = re.compile(rb"(" + _TOKEN + rb") ([!\"$-~]++) HTTP/(\d)\.(\d)\r\n" + _FIELDS)
_STATUS: Final = rb"(HTTP/1\.([01]) ([1-5]\d\d)(?: [^\x00-\x08\x0a-\x1f\x7f]*+)?)\r\n"
_RESPONSE: Final = re.compile(_STATUS + _FIELDS)
_FIELD_LINE: Final = re.compile(_TOKEN + rb":[^\x00-\x08\x0a-\x1f\x7f]*+\r\n")
# At most 15 hex digits: a size of 2**60 or more is an attack.
_CHUNK_LINE: Final = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*+(?:;[^\x00-\x08\x0a-\x1f\x7f]*+)?\r\n")
_ABSOLUTE: Final = re.compile(rb"(?i:https?)://[^/?#]*+")
_LENGTH: Final = re.compile(rb"\d{1,15}")
_REQUEST_ID: Final = re.compile(rb"[!-~]{1,128}")

# CONNECT has no request or answer boundary; TRACE would expose a caller's headers.
_NOT_PROXIED: Final = frozenset((b"CONNECT", b"TRACE"))

_NO_TRAILERS: Final = frozenset((b"content-length", b"transfer-encoding", b"host", b"connection"))

MAX_LINE_BYTES: Final = 256  # chunk size line; extensions are ignored
MAX_TRAILER_BYTES: Final = 8192
# A chunk costs about the same whatever its size. This many may be tiny; beyond that the average
# payload must be 16 bytes. Events and ordinary writes carry far more.
FREE_CHUNKS: Final = 100_000
MIN_CHUNK_BYTES: Final = 16

# Headers with a meaning for the router; others are forwarded.
_DROP, _LENGTH_ROLE, _CODING, _CONNECTION, _HOST, _EXPECT, _AUTH, _ID, _PIN, _UPGRADE = range(10)
_DIAGNOSTICS, _API_KEY, _ORIGIN, _ENCODING = 10, 11, 12, 13
_REQUEST_ROLES: dict[bytes, int] = {
    b"content-length": _LENGTH_ROLE,
    b"transfer-encoding": _CODING,
    b"connection": _CONNECTION,
    b"host": _HOST,
    b"expect": _EXPECT,
    b"authorization": _AUTH,
    b"x-api-key": _API_KEY,  # Anthropic's clients
    b"x-request-id": _ID,
    b"x-emberline-pin": _PIN,
    b"x-emberline-diagnostics": _DIAGNOSTICS,
    b"origin": _ORIGIN,  # the router answers for all workers (http/cors.py)
    b"content-encoding": _ENCODING,  # workers read plain bodies only
    b"keep-alive": _DROP,
    b"proxy-connection": _DROP,
    b"proxy-authorization": _DROP,
    b"te": _DROP,
    b"trailer": _DROP,
    b"upgrade": _UPGRADE,
}
_TYPE: Final = 10
_RESPONSE_ROLES: dict[bytes, int] = {
    b"content-length": _LENGTH_ROLE,
    b"transfer-encoding": _CODING,
    b"connection": _CONNECTION,
    b"content-type": _TYPE,
    b"keep-alive": _DROP,
    b"proxy-connection": _DROP,
    b"trailer": _DROP,
    b"upgrade": _DROP,
    b"x-request-id": _DROP,  # replaced by the router's
    b"request-id": _DROP,
    b"x-emberline-worker": _DROP,
    b"x-emberline-decision": _DROP,
    b"access-control-allow-origin": _DROP,  # the router's own (http/cors.py)
    b"access-control-allow-credentials": _DROP,
    b"access-control-expose-headers": _DROP,
}


class ProtocolError(Exception):
    """The peer violated HTTP; its connection is unusable."""


class RequestHead:
    """Request head without hop-by-hop headers.

    `length` is -1 without Content-Length. `fields` are the header lines to forward, with line ends.
    `request_id` is the caller's or the router's; `engine_id`, as sent to workers, is unique.
    `encoding`: content coding of the body; b"": none.
    """

    __slots__ = (
        "authorization", "chunked", "diagnostics", "encoding", "engine_id", "expect", "fields",
        "keep_alive", "length", "method", "minor", "origin", "path", "pin", "request_id", "target",
    )  # fmt: skip

    def __init__(self, method: bytes, target: bytes, minor: int, path: bytes = b"") -> None:
        self.method = method
        self.target = target
        self.path = path or target.partition(b"?")[0]
        self.minor = minor
        self.keep_alive = minor == 1
        self.length = -1
        self.chunked = False
        self.expect = False
        self.authorization = b""
        self.request_id = b""
        self.engine_id = b""
        self.pin = b""
        self.diagnostics = b""
        self.origin = b""
        self.encoding = b""
        self.fields = b""

    def again(self, length: int) -> RequestHead:
        new = RequestHead(self.method, self.target, self.minor, self.path)
        new.keep_alive = self.keep_alive
        new.length = length
        new.chunked = self.chunked
        new.expect = self.expect
        new.authorization = self.authorization
        new.request_id = self.request_id
        new.pin = self.pin
        new.diagnostics = self.diagnostics
        new.origin = self.origin
        new.encoding = self.encoding
        new.fields = self.fields
        return new

    def get(self, name: bytes) -> bytes | None:
        """Return a forwarded header's value; `name` in lower case."""
        for line in self.fields.split(b"\r\n"):
            key, _, value = line.partition(b":")
            if key.lower() == name:
                return value.strip(b" \t")
        return None


class ResponseHead:
    """Response head; `length` is -1 for chunked or close-delimited bodies."""

    __slots__ = ("chunked", "events", "fields", "keep_alive", "length", "status", "status_line")

    def __init__(self, status_line: bytes, status: int, minor: int) -> None:
        self.status_line = status_line
        self.status = status
        self.keep_alive = minor == 1
        self.length = -1
        self.chunked = False
        self.events = False  # Content-Type: text/event-stream
        self.fields = b""

    def again(self, length: int) -> ResponseHead:
        new = ResponseHead(self.status_line, self.status, 1)
        new.keep_alive = self.keep_alive
        new.length = length
        new.chunked = self.chunked
        new.events = self.events
        new.fields = self.fields
        return new


def _set_forwarded_fields(
    head: RequestHead | ResponseHead, fields: list[bytes], connection: bytes
) -> None:
    """Set the lines to forward, without those named by Connection (RFC 9110 7.6.1)."""
    if connection and connection != b",keep-alive":
        named = {name.strip(b" \t") for name in connection.split(b",")}
        if b"close" in named:
            head.keep_alive = False
        named -= {b"close", b"keep-alive", b""}
        fields = [line for line in fields if line.partition(b":")[0].lower() not in named]
    head.fields = b"\r\n".join(fields)  # the empty last piece ends the last line


def _parse_target(method: bytes, target: bytes) -> bytes:
    if target.startswith(b"/"):
        return target
    if target == b"*" and method == b"OPTIONS":
        return target
    absolute = _ABSOLUTE.match(target)
    if absolute is None:
        raise Refusal("bad_request", "the request target must be a path")
    rest = target[absolute.end() :]
    return rest if rest.startswith(b"/") else b"/" + rest


def parse_request(head: bytes) -> RequestHead:
    """Parse a head that ends with the last header's line end, without the empty line."""
    match = _REQUEST.fullmatch(head)
    if match is None:
        raise Refusal("bad_request", "the request head is not valid HTTP/1.1")
    method, target, major, minor, block = match.groups()
    if major != b"1" or minor not in b"01":
        raise Refusal("version_not_supported", "only HTTP/1.1 and HTTP/1.0 are served")
    if method in _NOT_PROXIED:
        raise Refusal("unsupported", "this method is not proxied")
    out = RequestHead(method, _parse_target(method, target), 1 if minor == b"1" else 0)
    fields: list[bytes] = []
    hosts = 0
    connection = api_key = b""
    for line in block.split(b"\r\n"):
        name, _, value = line.partition(b":")
        role = _REQUEST_ROLES.get(name.lower(), -1)
        if role < 0:
            fields.append(line)
            continue
        value = value.strip(b" \t")
        if role == _HOST:
            hosts += 1
        elif role == _LENGTH_ROLE:
            if out.length >= 0 or not _LENGTH.fullmatch(value):
                raise Refusal("bad_request", "Content-Length must be one number")
            out.length = int(value)
        elif role == _CODING:
            if out.chunked or value.lower() != b"chunked" or out.minor == 0:
                raise Refusal("unsupported", "only the transfer coding chunked is understood")
            out.chunked = True
        elif role == _CONNECTION:
            connection += b"," + value.lower()
        elif role == _AUTH:
            if out.authorization:
                raise Refusal("bad_request", "Authorization is given twice")
            out.authorization = value
        elif role == _API_KEY:
            if api_key:
                raise Refusal("bad_request", "x-api-key is given twice")
            api_key = value
        elif role == _ID:
            if _REQUEST_ID.fullmatch(value):
                out.request_id = value
        elif role == _PIN:
            out.pin = value
        elif role == _DIAGNOSTICS:
            out.diagnostics = value
        elif role == _ORIGIN:
            out.origin = value
        elif role == _ENCODING:
            if value.lower() not in (b"", b"identity"):
                out.encoding += (b"," if out.encoding else b"") + value.lower()
        elif role == _EXPECT:
            if value.lower() != b"100-continue":
                raise Refusal("expectation_failed", "only Expect: 100-continue is understood")
            out.expect = out.minor == 1
        elif role == _UPGRADE and b"websocket" in value.lower():
            # Other upgrades (h2c) may be ignored in HTTP/1.1; this one is mandatory.
            raise Refusal("unsupported", "WebSocket is not proxied")
    if out.chunked and out.length >= 0:
        raise Refusal("bad_request", "Content-Length and Transfer-Encoding exclude each other")
    if hosts > 1 or (hosts == 0 and out.minor == 1):
        raise Refusal("bad_request", "exactly one Host header is needed")
    if api_key and not out.authorization:
        out.authorization = b"Bearer " + api_key
    _set_forwarded_fields(out, fields, connection)
    return out


def parse_response(head: bytes) -> ResponseHead:
    """Parse a worker's head. Raise ProtocolError if it is ambiguous."""
    match = _RESPONSE.fullmatch(head)
    if match is None:
        raise ProtocolError("the worker's response head is not valid HTTP/1.1")
    status_line, minor, status, block = match.groups()
    if minor == b"0":
        status_line = b"HTTP/1.1" + status_line[8:]  # the version is hop-by-hop
    out = ResponseHead(status_line, int(status), 1 if minor == b"1" else 0)
    fields: list[bytes] = []
    connection = b""
    for line in block.split(b"\r\n"):
        name, _, value = line.partition(b":")
        role = _RESPONSE_ROLES.get(name.lower(), -1)
        if role < 0:
            fields.append(line)
            continue
        value = value.strip(b" \t")
        if role == _TYPE:
            out.events = value.startswith(b"text/event-stream")
            fields.append(line)
        elif role == _LENGTH_ROLE:
            if out.length >= 0 or not _LENGTH.fullmatch(value):
                raise ProtocolError("the worker's Content-Length is not one number")
            out.length = int(value)
        elif role == _CODING:
            if out.chunked or value.lower() != b"chunked" or minor == b"0":
                raise ProtocolError("the worker's transfer coding is not chunked")
            out.chunked = True
        elif role == _CONNECTION:
            connection += b"," + value.lower()
    if out.chunked and out.length >= 0:
        raise ProtocolError("the worker sent Content-Length and Transfer-Encoding")
    _set_forwarded_fields(out, fields, connection)
    return out


# Size lines of whole chunks by the chunks' length with framing, in the spelling of common servers.
# Smaller payloads count against FREE_CHUNKS, longer ones gain nothing.
_SIZE_LINES: Final = {
    len(b"%x\r\n\r\n" % size) + size: b"%x\r\n" % size for size in range(MIN_CHUNK_BYTES, 4096)
}

_SIZE: Final = 0
_DATA: Final = 1
_DATA_END: Final = 2
_TRAILER: Final = 3
_CHUNKS_TOO_SMALL: Final = f"its chunks carry less than {MIN_CHUNK_BYTES} bytes on average"


class ChunkedBody:
    __slots__ = ("_left", "_line", "_spare", "_state", "_trailer_bytes", "done", "pieces")

    def __init__(self) -> None:
        self.done = False
        self.pieces: list[bytes] = []  # payload of the last feed
        self._state = _SIZE
        self._left = 0
        self._line = b""
        self._spare = FREE_CHUNKS * MIN_CHUNK_BYTES  # payload bytes above the required minimum
        self._trailer_bytes = 0

    @property
    def between(self) -> bool:
        return self._state == _SIZE and not self._line

    def whole(self, data: bytes) -> bytes:
        """Return the payload if `data` is exactly one chunk of common size, as a server-sent event
        usually is; else b"", without effect.
        """
        line = _SIZE_LINES.get(len(data))
        if line is None or not data.startswith(line) or not data.endswith(b"\r\n"):
            return b""
        if self._state != _SIZE or self._line:
            return b""
        piece = data[len(line) : -2]
        self._spare += len(piece) - MIN_CHUNK_BYTES
        return piece

    def feed(self, data: bytes) -> int:
        """Return how many bytes of `data` belong to this body; fewer than all only when `done`."""
        if self._state == _SIZE and not self._line:
            # Fast path: a server-sent event usually arrives as exactly one chunk.
            whole = _CHUNK_LINE.match(data)
            if whole is not None:
                start = whole.end()
                size = int(whole[1], 16)
                if (
                    size
                    and start + size + 2 == len(data)
                    and start <= MAX_LINE_BYTES
                    and data.endswith(b"\r\n")
                ):
                    self._spare += size - MIN_CHUNK_BYTES
                    if self._spare >= 0:
                        self.pieces = [data[start:-2]]
                        return len(data)
                    raise ProtocolError(_CHUNKS_TOO_SMALL)
        self.pieces = []
        pos = 0
        end = len(data)
        while pos < end and not self.done:
            if self._state == _DATA:
                take = min(self._left, end - pos)
                self.pieces.append(data[pos : pos + take])
                pos += take
                self._left -= take
                if self._left == 0:
                    self._state = _DATA_END
            elif self._state == _DATA_END:
                take = min(2 - len(self._line), end - pos)
                self._line += data[pos : pos + take]
                pos += take
                if not b"\r\n".startswith(self._line):
                    raise ProtocolError("a chunk does not match its size")
                if len(self._line) == 2:
                    self._line = b""
                    self._state = _SIZE
            elif self._state == _SIZE and not self._line:
                pos = self._read_whole(data, pos)
            else:
                pos = self._read_line(data, pos)
        return pos

    def _read_whole(self, data: bytes, pos: int) -> int:
        """Parse one chunk; fast if it is complete."""
        match = _CHUNK_LINE.match(data, pos)
        if match is not None:
            start = match.end()
            size = int(match[1], 16)
            stop = start + size
            if size and start - pos <= MAX_LINE_BYTES and data[stop : stop + 2] == b"\r\n":
                self._count(size)
                self.pieces.append(data[start:stop])
                return stop + 2
        return self._read_line(data, pos)

    def _count(self, size: int) -> None:
        self._spare += size - MIN_CHUNK_BYTES
        if self._spare < 0:
            raise ProtocolError(_CHUNKS_TOO_SMALL)

    def _read_line(self, data: bytes, pos: int) -> int:
        stop = data.find(b"\n", pos)
        limit = MAX_LINE_BYTES if self._state == _SIZE else MAX_TRAILER_BYTES
        upto = len(data) if stop < 0 else stop + 1
        line = self._line + data[pos:upto]
        if len(line) > limit:
            raise ProtocolError("a chunk's size line or trailer is too long")
        if stop < 0:
            self._line = line
            return upto
        self._line = b""
        if self._state == _SIZE:
            size_line = _CHUNK_LINE.fullmatch(line)
            if size_line is None:
                raise ProtocolError("a chunk's size line is not valid")
            self._left = int(size_line[1], 16)
            self._state = _DATA if self._left else _TRAILER
            if self._left:
                self._count(self._left)
        elif line == b"\r\n":
            self.done = True
        else:
            self._trailer_bytes += len(line)
            if self._trailer_bytes > MAX_TRAILER_BYTES or not _FIELD_LINE.fullmatch(line):
                raise ProtocolError("a trailer is not valid")
            if line.partition(b":")[0].lower() in _NO_TRAILERS:
                raise ProtocolError("a trailer must not contain framing fields")
        return upto
