"""TLS to a node: server verification and client certificates."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.pool import CachePool
from tests.support.cachenode import CacheNode
from tests.support.certificates import authority, stranger

LONG_S = 60.0


class TlsFront:
    """Terminates TLS before a node, as a sidecar would."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._behind = ("127.0.0.1", port)
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        try:
            client = self._context.wrap_socket(plain, server_side=True)
        except OSError:
            plain.close()
            return
        behind = socket.create_connection(self._behind)
        threading.Thread(target=_carry, args=(client, behind), daemon=True).start()
        _carry(behind, client)


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def front(node: CacheNode) -> Iterator[TlsFront]:
    one = TlsFront(node.port, authority().server("localhost", "127.0.0.1"))
    yield one
    one.close()


def works(url: str) -> bool:
    received: list[str] = []
    pool = CachePool(Nodes.parse(url), on_change=received.append)
    stem = os.urandom(6).hex().encode()
    stored = [(b"%b-%d" % (stem, i), memoryview(os.urandom(200_000))) for i in range(5)]
    wanted = [(key, memoryview(bytearray(200_000))) for key, _ in stored]
    try:
        if pool.store(stored, 60, LONG_S) != [KeyOutcome.OK] * 5:
            return False
        return pool.load(wanted, LONG_S) == [KeyOutcome.OK] * 5 and wanted == stored
    finally:
        pool.close()


def test_values_are_stored_over_tls(front: TlsFront, tmp_path: Path) -> None:
    ca = authority().write_ca(tmp_path / "ca.pem")
    assert works(f"rediss://localhost:{front.port}?ca_file={ca}")
    assert works(f"rediss://127.0.0.1:{front.port}?ca_file={ca}&server_name=localhost")


def test_untrusted_server_is_rejected(front: TlsFront, tmp_path: Path) -> None:
    ca = stranger().write_ca(tmp_path / "ca.pem")
    assert not works(f"rediss://localhost:{front.port}?ca_file={ca}")
    assert not works(f"rediss://localhost:{front.port}")


def test_server_with_another_name_is_rejected(front: TlsFront, tmp_path: Path) -> None:
    ca = authority().write_ca(tmp_path / "ca.pem")
    assert not works(f"rediss://localhost:{front.port}?ca_file={ca}&server_name=elsewhere")


def test_client_certificate_is_presented(node: CacheNode, tmp_path: Path) -> None:
    context = authority().server("localhost")
    context.verify_mode = ssl.CERT_REQUIRED
    ca = authority().write_ca(tmp_path / "ca.pem")
    context.load_verify_locations(ca)
    cert, key = authority().write(tmp_path, "worker.cache", stem="client")
    front = TlsFront(node.port, context)
    try:
        url = f"rediss://localhost:{front.port}?ca_file={ca}"
        assert not works(url)
        assert works(f"{url}&cert_file={cert}&key_file={key}")
    finally:
        front.close()


def test_missing_certificate_file_is_an_outcome(front: TlsFront) -> None:
    assert not works(f"rediss://localhost:{front.port}?ca_file=/nowhere/ca.pem")
