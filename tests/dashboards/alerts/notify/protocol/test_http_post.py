"""POST: allowed addresses, deadline, and no secrets in errors."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trustme

from console.core.outbound import address_problem, url_problem
from dashboards.alerts.notify.protocol import http_post
from dashboards.alerts.notify.protocol.http_post import PostError, post, redact_url
from tests.support.http_stub import HANG, http_stub
from tests.support.ports import free_port

SECRET = "T0KEN"


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.1.1", "100.100.100.200", "0.0.0.0", "224.0.0.1"),
        *("255.255.255.255", "240.0.0.1", "::", "fe80::1", "ff02::1", "fd00:ec2::254"),
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1"),
    ],
)
def test_forbidden_addresses_are_rejected(address: str) -> None:
    assert address_problem(address)
    host = f"[{address}]" if ":" in address else address
    assert url_problem(f"http://{host}/latest/meta-data/")
    with pytest.raises(PostError) as refused:
        post(f"http://{host}/", b"", {})
    assert refused.value.permanent


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.1.2.3", "192.168.1.1", "8.8.8.8"])
def test_private_networks_and_localhost_can_be_allowed(address: str) -> None:
    assert address_problem(address) == ""


@pytest.mark.parametrize(
    "url",
    [
        *("", "hooks.example.org", "ftp://h/x", "file:///etc/passwd", "http://", "http://[::1"),
        *("http://u:p@h/", "http://h:99999/", "http://h/a b", "http://h/\n", "http://bücher/"),
    ],
)
def test_invalid_address_is_reported_before_connecting(url: str) -> None:
    assert url_problem(url, query=True)


def test_hostname_is_checked_when_it_is_resolved(monkeypatch: Any) -> None:
    """The addresses at connection time count; one forbidden address is enough."""

    def resolve(*_: Any, **__: Any) -> list[Any]:
        family = socket.AF_INET
        pairs = (("127.0.0.1", 80), ("169.254.169.254", 80))
        return [(family, socket.SOCK_STREAM, 6, "", pair) for pair in pairs]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(PostError, match="credentials") as refused:
        post("http://innocent.example/", b"", {})
    assert refused.value.permanent


def test_request_is_sent_and_redirects_are_not_followed() -> None:
    with http_stub({"/hook": (204, "")}) as stub:
        assert post(f"{stub.url}/hook?k={SECRET}", b"{}", {"X-A": "1"}).status == 204
        assert stub.seen == [("POST", f"/hook?k={SECRET}", b"{}")]
        assert stub.headers[0]["X-A"] == "1"
        assert stub.headers[0]["Host"] == stub.address
    with http_stub({"/hook": (302, "")}, {"Location": f"{stub.url}/x"}) as moved:
        assert post(f"{moved.url}/hook", b"{}", {}).status == 302
        assert len(moved.seen) == 1


def test_response_is_read_only_as_far_as_needed() -> None:
    with http_stub({"/": (200, "x" * 100_000)}) as stub:
        assert len(post(stub.url, b"", {}).start) == http_post.MAX_ANSWER


def test_silent_server_times_out_and_no_secret_is_reported() -> None:
    with http_stub({"/hook": (HANG, "")}) as stub, pytest.raises(PostError) as late:
        post(f"{stub.url}/hook?k={SECRET}", b"", {}, deadline_s=0.2)
    assert "did not respond in time" in str(late.value)
    with pytest.raises(PostError) as refused:
        post(f"http://127.0.0.1:{free_port()}/{SECRET}", b"", {})
    assert "refused the connection" in str(refused.value)
    for raised in (late, refused):
        assert SECRET not in str(raised.value)
        assert not raised.value.permanent
    with pytest.raises(PostError, match="not found"):
        post("http://nowhere.invalid/", b"", {})
    assert redact_url(f"https://h.example:8443/{SECRET}?{SECRET}") == "https://h.example:8443/…"


@contextmanager
def dripping() -> Iterator[str]:
    """Server that sends an endless response, each byte in time."""
    stop = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        sock, _ = listener.accept()
        with sock:
            try:
                sock.sendall(b"HTTP/1.1 200 OK\r\nX: ")
                while not stop.wait(0.02):
                    sock.sendall(b"x")
            except OSError:
                return

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop.set()
    thread.join()
    listener.close()


def test_slow_response_is_cut() -> None:
    with dripping() as url, pytest.raises(PostError, match="did not respond in time"):
        post(url, b"", {}, deadline_s=0.3)


def test_tls_certificate_is_verified(monkeypatch: Any) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"https://localhost:{listener.getsockname()[1]}/"
        thread = threading.Thread(target=_answer_tls, args=(listener, context, 2))
        thread.start()
        with pytest.raises(PostError, match="certificate rejected"):
            post(url, b"x", {})
        trusting = ssl.create_default_context()
        authority.configure_trust(trusting)
        monkeypatch.setattr(http_post, "_tls", lambda: trusting)
        assert post(url, b"x", {}).status == 200
        thread.join()


def _answer_tls(listener: socket.socket, context: ssl.SSLContext, times: int) -> None:
    for _ in range(times):
        raw, _address = listener.accept()
        try:
            with context.wrap_socket(raw, server_side=True) as sock:
                received = b""
                while not received.endswith(b"\r\n\r\nx"):
                    received += sock.recv(4096)
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        except OSError:
            continue
