"""Request smuggling through a real router: rejected, not forwarded, closed.

Each case hides a second request in an ambiguous body or trailer; the worker must see no part of it.
"""

from __future__ import annotations

import pytest

from tests.routing.engine.harness import Client, chat, metric, post, router
from tests.support.fake_worker import Conversation, FakeWorker

HIDDEN = b"GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"


def smuggle(*lines: bytes, start: bytes = b"POST /v1/completions HTTP/1.1") -> bytes:
    return b"\r\n".join((start, b"host: a", *lines)) + b"\r\n\r\n0\r\n\r\n" + HIDDEN


CASES: dict[str, tuple[bytes, int]] = {
    "length before coding": (smuggle(b"content-length: 5", b"transfer-encoding: chunked"), 400),
    "coding before length": (smuggle(b"transfer-encoding: chunked", b"content-length: 5"), 400),
    "length twice": (smuggle(b"content-length: 5", b"content-length: 0"), 400),
    "the same length twice": (smuggle(b"content-length: 5", b"content-length: 5"), 400),
    "a list of lengths": (smuggle(b"content-length: 5, 5"), 400),
    "a plus sign": (smuggle(b"content-length: +5"), 400),
    "a minus sign": (smuggle(b"content-length: -5"), 400),
    "a length with a space inside": (smuggle(b"content-length: 1 0"), 400),
    "a hex length": (smuggle(b"content-length: 0x5"), 400),
    "a length beyond 64 bits": (smuggle(b"content-length: 18446744073709551621"), 400),
    "identity after chunked": (smuggle(b"transfer-encoding: chunked, identity"), 501),
    "identity before chunked": (smuggle(b"transfer-encoding: identity, chunked"), 501),
    "identity": (smuggle(b"transfer-encoding: identity"), 501),
    "chunked twice in a list": (smuggle(b"transfer-encoding: chunked, chunked"), 501),
    "chunked in two lines": (smuggle(*[b"transfer-encoding: chunked"] * 2), 501),
    "another name for chunked": (smuggle(b"transfer-encoding: xchunked"), 501),
    "chunked in quotes": (smuggle(b'transfer-encoding: "chunked"'), 501),
    "chunked with a parameter": (smuggle(b"transfer-encoding: chunked;q=1"), 501),
    "an empty coding": (smuggle(b"transfer-encoding:", b"content-length: 5"), 501),
    "chunked in HTTP/1.0": (
        smuggle(b"transfer-encoding: chunked", start=b"POST /x HTTP/1.0"), 501,
    ),
    "space before the colon of a length": (smuggle(b"content-length : 5"), 400),
    "space before the colon of a coding": (smuggle(b"transfer-encoding : chunked"), 400),
    "tab before the colon": (smuggle(b"transfer-encoding\t: chunked"), 400),
    "a folded coding": (smuggle(b"transfer-encoding:", b" chunked"), 400),
    "a folded header": (smuggle(b"x: 1", b" content-length: 5"), 400),
    "a fold of a tab": (smuggle(b"x: 1", b"\tcontent-length: 5"), 400),
    "space before the first header": (smuggle(b"", start=b"POST /x HTTP/1.1\r\n x: 1"), 400),
    "bare line feed in a value": (smuggle(b"x: 1\ncontent-length: 5"), 400),
    "bare carriage return in a value": (smuggle(b"x: 1\rcontent-length: 5"), 400),
    "bare line feeds at the end": (b"GET / HTTP/1.1\nhost: a\n\n" + HIDDEN, 400),
    "one bare line feed": (b"GET / HTTP/1.1\r\nhost: a\n\r\n" + HIDDEN, 400),
    "nul in a value": (smuggle(b"x: \x00", b"content-length: 5"), 400),
    "nul in a name": (smuggle(b"content-length\x00: 5"), 400),
    "nul in the target": (smuggle(start=b"GET /\x00 HTTP/1.1"), 400),
    "vertical tab around a coding": (smuggle(b"transfer-encoding: \x0bchunked"), 400),
    "a header without a name": (smuggle(b": 5"), 400),
    "a line without a colon": (smuggle(b"content-length 5"), 400),
    "a name with a bracket": (smuggle(b"content[length: 5"), 400),
    "two hosts": (smuggle(b"host: b"), 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n" + HIDDEN, 400),
    "a tab in the request line": (smuggle(start=b"GET\t/ HTTP/1.1"), 400),
    "a space in the target": (smuggle(start=b"GET /a b HTTP/1.1"), 400),
    "a line break in an absolute target": (
        smuggle(start=b"GET http://a/\r\nx: injected HTTP/1.1"), 400,
    ),
    "a line feed in an absolute target": (smuggle(start=b"GET http://a/\nx HTTP/1.1"), 400),
    "a fragment in the target": (smuggle(start=b"GET /a#b HTTP/1.1"), 400),
    "no request line at all": (b"host: a\r\n\r\n" + HIDDEN, 400),
    "HTTP/0.9": (b"GET /\r\n\r\n" + HIDDEN, 400),
    "a version in small letters": (smuggle(start=b"GET / http/1.1"), 400),
    "HTTP/1.2": (smuggle(start=b"GET / HTTP/1.2"), 505),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + HIDDEN, 505),
    "CONNECT": (smuggle(start=b"CONNECT a:443 HTTP/1.1"), 501),
    "CONNECT with a path": (smuggle(start=b"CONNECT / HTTP/1.1"), 501),
    "TRACE": (smuggle(start=b"TRACE / HTTP/1.1"), 501),
    "WebSocket": (smuggle(b"connection: Upgrade", b"upgrade: WebSocket"), 501),
    "an unknown expectation": (smuggle(b"expect: 200-ok", b"content-length: 5"), 417),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
async def test_ambiguous_requests_are_rejected_and_not_forwarded(case: str) -> None:
    wire, status = CASES[case]
    async with FakeWorker() as worker, router(worker) as server:
        async with await Client.to(server.listen) as client:
            await client.send(wire)
            answer = await client.response()
            assert answer.status == status
            assert answer.headers["connection"] == "close"
            assert await client.closed(), "one answer, then the end: nothing after it is read"
        assert worker.requests == []
        name = "emberline_router_request_errors_total"
        assert await metric(server, name, reason="bad_request") == 1


BODIES: dict[str, bytes] = {
    "a size line with a bare line feed": b"5\nhello\r\n0\r\n\r\n",
    "an extension with a bare line feed": b"5;x\nhello\r\n0\r\n\r\n",
    "an extension with a bare carriage return": b"5;a\rb\r\nhello\r\n0\r\n\r\n",
    "an extension with nul": b"5;\x00\r\nhello\r\n0\r\n\r\n",
    "an endless extension": b"5;" + b"x" * 100_000,
    "a plus sign": b"+5\r\nhello\r\n0\r\n\r\n",
    "0x": b"0x5\r\nhello\r\n0\r\n\r\n",
    "a space before the size": b" 5\r\nhello\r\n0\r\n\r\n",
    "an underscore": b"0_5\r\nhello\r\n0\r\n\r\n",
    "no size": b";x\r\nhello\r\n0\r\n\r\n",
    "a size beyond 64 bits": b"10000000000000005\r\nhello\r\n0\r\n\r\n",
    "more bytes than the size": b"5\r\nhello!\r\n0\r\n\r\n",
    "a line feed after the data": b"5\r\nhello\n0\r\n\r\n",
    "a trailer without a name": b"0\r\n: x\r\n\r\n",
    "a trailer with a space before the colon": b"0\r\ncontent-length : 5\r\n\r\n",
    "a length in a trailer": b"0\r\ncontent-length: 9\r\n\r\n",
    "a trailer folded": b"0\r\nx: 1\r\n y\r\n\r\n",
    "a trailer with a bare line feed": b"0\r\nx: 1\n\r\n",
    "an end with a bare line feed": b"0\r\n\n",
}


@pytest.mark.parametrize("case", BODIES)
async def test_ambiguous_chunks_are_rejected(case: str) -> None:
    wire = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n" + CHUNKED + b"\r\n" + BODIES[case]
    async with FakeWorker() as worker, router(worker) as server:
        async with await Client.to(server.listen) as client:
            await client.send(wire + HIDDEN)
            answer = await client.response()
            assert (answer.status, answer.code) == (400, "bad_request")
            assert await client.closed()
        assert worker.requests == []


async def echo(talk: Conversation) -> None:
    request = talk.request
    await talk.json(
        {"target": request.target, "headers": request.headers, "method": request.method}
    )


async def test_chunk_extensions_and_trailers_are_removed() -> None:
    wire = (
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n" + CHUNKED + b"trailer: x-t\r\n\r\n"
        b'7;name=value\r\n"hello"\r\n0;last\r\nx-t: 1\r\n\r\n'
    )
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = echo
        async with await Client.to(server.listen) as client:
            await client.send(wire + post(chat("next")))
            assert (await client.response()).status == 200
            assert (await client.response()).status == 200
        first, second = worker.requests
        assert first.body == b'"hello"'
        assert first.headers["content-length"] == "7"
        assert not {"transfer-encoding", "trailer", "x-t"} & set(first.headers)
        assert second.json == chat("next")


async def test_absolute_target_is_reduced_to_its_path() -> None:
    targets = {
        b"http://user:secret@other:1/a/b?c=d": "/a/b?c=d",
        b"HTTP://other": "/",
        b"https://other?x=http://more/": "/?x=http://more/",
        b"http://[::1]:80/a%0d%0ax:1": "/a%0d%0ax:1",
    }
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = echo
        async with await Client.to(server.listen) as client:
            for target, seen in targets.items():
                await client.send(b"GET " + target + b" HTTP/1.1\r\nhost: other\r\n\r\n")
                found = (await client.response()).json
                assert found["target"] == seen
                assert found["headers"]["host"] == f"127.0.0.1:{worker.port}"
                assert "secret" not in str(found)


@pytest.mark.parametrize(
    "lines",
    [
        b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
        b"connection: upgrade\r\nupgrade: TLS/1.3, h2c\r\n",
    ],
)
async def test_upgrade_offers_are_removed(lines: bytes) -> None:
    """An answer in HTTP/1.1 is the RFC's way to decline."""
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = echo
        async with await Client.to(server.listen) as client:
            for _ in range(2):
                await client.send(b"GET /x HTTP/1.1\r\nhost: a\r\n" + lines + b"\r\n")
                answer = await client.response()
                assert answer.status == 200
                seen = set(answer.json["headers"])
                assert not {"connection", "upgrade", "http2-settings"} & seen


async def test_headers_named_by_connection_are_removed() -> None:
    wire = (
        b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: x-hop, close\r\nx-hop: 1\r\nx-stay: 1\r\n\r\n"
    )
    async with FakeWorker() as worker, router(worker) as server:
        worker.script = echo
        async with await Client.to(server.listen) as client:
            await client.send(wire + HIDDEN)
            seen = (await client.response()).json["headers"]
            assert "x-stay" in seen
            assert "x-hop" not in seen
            assert await client.closed()
        assert [request.target for request in worker.requests] == ["/x"]


async def test_connection_header_cannot_remove_the_framing() -> None:
    """A proxy which drops Content-Length because Connection names it smuggles for the caller."""
    wire = post(chat("x"), connection="content-length, host, transfer-encoding, x-request-id")
    async with FakeWorker() as worker, router(worker) as server:
        async with await Client.to(server.listen) as client:
            await client.send(wire)
            assert (await client.response()).status == 200
        (seen,) = worker.requests
        assert seen.json == chat("x")
        assert {"content-length", "host", "x-request-id"} <= set(seen.headers)
