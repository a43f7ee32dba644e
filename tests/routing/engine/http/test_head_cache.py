"""Cached request heads parse exactly like uncached ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.engine.errors import Refusal
from routing.engine.http import head_cache, http1
from routing.engine.http.http1 import ProtocolError, RequestHead, ResponseHead
from tests.routing.engine.http.test_http1 import request


def facts(head: RequestHead | ResponseHead) -> dict[str, object]:
    found = {name: getattr(head, name) for name in dir(head) if not name.startswith("_")}
    return {name: value for name, value in found.items() if not callable(value)}


def parse_outcome(read, head: bytes) -> object:
    try:
        return facts(read(head))
    except (Refusal, ProtocolError) as error:
        return type(error), str(error)


LENGTHS = ("5", "0", "007", "", " ", "+5", "-1", "5,5", "1e3", "0x1", "5 ", "9" * 15, "9" * 16, "٣")
NAMES = ("Content-Length: ", "content-length: ", "CONTENT-LENGTH: ", "content-length:", "x: ")
LINES = st.one_of(
    st.builds(str.__add__, st.sampled_from(NAMES), st.sampled_from(LENGTHS)),
    st.sampled_from(
        (
            "host: a",
            "connection: close",
            "connection: x",
            "transfer-encoding: chunked",
            "authorization: Bearer a",
            "x-request-id: 1",
            "expect: 100-continue",
            " folded",
            "x: \r\ncontent-length: 7",
            "\ncontent-length: 7",
            "content-type: text/event-stream",
        )
    ),
)


@given(st.lists(LINES, max_size=5))
def test_requests_parse_alike_with_cold_and_warm_cache(lines: list[str]) -> None:
    head = "".join(f"{line}\r\n" for line in ("POST /v1/x HTTP/1.1", "Host: a", *lines)).encode()
    expected = parse_outcome(http1.parse_request, head)
    assert parse_outcome(head_cache.read_request, head) == expected
    assert parse_outcome(head_cache.read_request, head) == expected


@given(st.lists(LINES, max_size=5))
def test_responses_parse_alike_with_cold_and_warm_cache(lines: list[str]) -> None:
    head = "".join(f"{line}\r\n" for line in ("HTTP/1.1 200 OK", *lines)).encode()
    expected = parse_outcome(http1.parse_response, head)
    assert parse_outcome(head_cache.read_response, head) == expected
    assert parse_outcome(head_cache.read_response, head) == expected


@pytest.mark.parametrize("second", ["", "content-length: 5\r\n", "Content-Length: 3\r\n"])
@pytest.mark.parametrize("value", ["", "3x", "-3", "3, 3", "3" * 16])
def test_cached_valid_head_admits_no_invalid_one(value: str, second: str) -> None:
    good = request("POST / HTTP/1.1", "Host: a", "Content-Length: 3")
    assert head_cache.read_request(good).length == 3
    bad = good.replace(b": 3\r\n", f": {value}\r\n{second}".encode())
    with pytest.raises(Refusal):
        head_cache.read_request(bad)
    assert head_cache.read_request(good.replace(b": 3", b": 12345")).length == 12345


def test_changes_to_a_parsed_head_stay_with_its_request() -> None:
    head = request("GET / HTTP/1.1", "Host: a")
    first = head_cache.read_request(head)
    first.keep_alive = False
    first.request_id = b"named later"
    second = head_cache.read_request(head)
    assert second.keep_alive
    assert second.request_id == b""


def test_only_short_valid_heads_are_cached() -> None:
    long = request("GET / HTTP/1.1", "Host: a", "x: " + "a" * 3000)
    bad = request("GET / HTTP/1.1")
    before = head_cache._request.cache_info().currsize
    assert head_cache.read_request(long).fields.endswith(b"a\r\n")
    with pytest.raises(Refusal):
        head_cache.read_request(bad)
    assert head_cache._request.cache_info().currsize == before
