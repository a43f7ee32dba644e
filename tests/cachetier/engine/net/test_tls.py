"""TLS of a node: certificates, versions, rejections, metrics and renewal."""

from __future__ import annotations

import os
import socket
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import redis

from cachetier.engine.net.tls import LiveContext, TlsFiles
from tests.cachetier.engine.conftest import Start
from tests.support.cachenode import CacheNode, read_metric
from tests.support.certificates import authority, stranger
from tests.support.waiting import until

FAILURES = "emberline_l2_tls_handshake_failures_total"
LARGE = os.urandom(3 << 20)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, ...]:
    cert, key = authority().write(tmp_path, "localhost")
    return "--tls-cert", str(cert), "--tls-key", str(key)


@pytest.fixture
def ca(tmp_path: Path) -> str:
    return str(authority().write_ca(tmp_path / "ca.pem"))


def client(node: CacheNode, ca: str, **more: object) -> redis.Redis:
    return redis.Redis(
        "localhost", node.port, password=node.password or None, ssl=True, ssl_ca_certs=ca, **more
    )


def metric(node: CacheNode, name: str, **labels: str) -> float:
    """From an admin port with TLS."""
    url = f"https://localhost:{node.admin_port}/metrics"
    with urllib.request.urlopen(url, timeout=60, context=authority().client()) as answer:
        return read_metric(answer.read().decode(), name, **labels)


def shake_hands(node: CacheNode, context: ssl.SSLContext) -> bytes:
    """The certificate the node shows, after a PING which it answered."""
    with socket.create_connection(("localhost", node.port), 10) as sock:
        with context.wrap_socket(sock, server_hostname="localhost") as secure:
            secure.sendall(b"PING\r\n")
            assert secure.recv(100) == b"+PONG\r\n"
            found = secure.getpeercert(True)
            assert found is not None
            return found


@pytest.mark.parametrize("protocol", [2, 3])
def test_values_of_every_size_over_tls(
    start: Start, pair: tuple[str, ...], ca: str, protocol: int
) -> None:
    db = client(start(*pair, password="open sesame"), ca, protocol=protocol)
    for value in (b"", b"v", LARGE[:20_000], LARGE):
        assert db.set("k", value)
        assert db.get("k") == value
    assert db.mget(["k"] * 3) == [LARGE] * 3


def test_plain_text_and_old_tls_are_rejected_and_counted(
    start: Start, pair: tuple[str, ...]
) -> None:
    node = start(*pair)
    with socket.create_connection(("localhost", node.port), 10) as plain:
        plain.sendall(b"PING\r\n" * 10)
        came = b""
        while data := _received(plain):
            came += data
        assert b"PONG" not in came
    until(lambda: metric(node, FAILURES, reason="not_tls") == 1, what="plain text")
    old = authority().client()
    with pytest.warns(DeprecationWarning):
        old.minimum_version = ssl.TLSVersion.TLSv1
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(OSError):
        shake_hands(node, old)
    until(lambda: metric(node, FAILURES, reason="protocol_version") == 1, what="old TLS")


def _received(sock: socket.socket) -> bytes:
    try:
        return sock.recv(1000)
    except ConnectionError:
        return b""


def test_client_certificates_are_required(start: Start, pair: tuple[str, ...], ca: str) -> None:
    """With it no password is needed; the admin port needs no certificate, as probes have none."""
    node = start(*pair, "--tls-client-ca", ca)
    known, unknown = authority().client(), authority().client()
    authority().issue_for(known, "a-client")
    stranger().issue_for(unknown, "a-client")
    assert shake_hands(node, known)
    for context, reason in (
        (authority().client(), "client_certificate_missing"),
        (unknown, "client_certificate_refused"),
    ):
        with pytest.raises((OSError, AssertionError)):  # TLS 1.3 reports it with the first read
            shake_hands(node, context)
        until(lambda reason=reason: metric(node, FAILURES, reason=reason) == 1, what=reason)


def test_admin_port_uses_tls_unless_disabled(start: Start, pair: tuple[str, ...]) -> None:
    node, plain = start(*pair), start(*pair, "--admin-plain")
    assert metric(node, "emberline_l2_node_up") == 1
    with pytest.raises((urllib.error.URLError, OSError)):
        node.page("/healthz")
    assert plain.page("/healthz") == "ok\n"


def test_silent_handshake_does_not_block_others(start: Start, pair: tuple[str, ...]) -> None:
    node = start(*pair)
    silent = [socket.create_connection(("localhost", node.port), 10) for _ in range(20)]
    assert shake_hands(node, authority().client())
    for sock in silent:
        sock.close()


def test_new_certificates_are_loaded_without_cutting_connections(
    start: Start, pair: tuple[str, ...], ca: str, tmp_path: Path
) -> None:
    node = start(*pair, password="open sesame")
    db = client(node, ca)
    assert db.set("k", LARGE)
    context = authority().client()

    def shown() -> bytes:
        with socket.create_connection(("localhost", node.port), 10) as sock:
            with context.wrap_socket(sock, server_hostname="localhost") as secure:
                return secure.getpeercert(True) or b""

    before = shown()
    (tmp_path / "server.crt").write_text("half a fi")
    until(
        lambda: "previous certificate stays in use" in node.log.read_text(),
        what="the broken pair refused",
    )
    assert shown() == before
    authority().write(tmp_path, "localhost")
    until(lambda: shown() != before, what="the new certificate")
    assert db.get("k") == LARGE
    assert len(db.connection_pool._available_connections) == 1


# -- the context itself ------------------------------------------------------------------------
def test_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    live = LiveContext(TlsFiles(*authority().write(tmp_path, "localhost")))
    first = live.context
    assert not live.renew()
    assert live.context is first


def test_replaced_link_is_a_change(tmp_path: Path) -> None:
    """Kubernetes swaps a link to a folder; times and sizes may be the same."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        authority().write(folder, "localhost")
        for path in folder.iterdir():
            os.utime(path, (time.time(), 1000.0))
    link = tmp_path / "now"
    link.symlink_to(folders[0])
    live = LiveContext(TlsFiles(link / "server.crt", link / "server.key"))
    first = live.context
    link.unlink()
    link.symlink_to(folders[1])
    assert live.renew()
    assert live.context is not first


def test_broken_file_keeps_the_last_valid_context_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = authority().write(tmp_path, "localhost")
    live = LiveContext(TlsFiles(cert, key))
    first, good = live.context, cert.read_bytes()
    cert.write_text("half a fi")
    for _ in range(5):
        assert not live.renew()
    assert live.context is first
    assert "is not usable" in live.problem
    assert len(caplog.records) == 1
    cert.unlink()
    assert not live.renew()
    assert "cannot be read" in live.problem
    cert.write_bytes(good)
    assert live.renew()
    assert live.problem == ""
