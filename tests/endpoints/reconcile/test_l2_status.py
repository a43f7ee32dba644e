"""State of an external Redis: a result in every case, never an exception."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from endpoints.reconcile import l2_status
from endpoints.spec.endpoint_spec import parse
from endpoints.workload.worker_spec import L2Access
from tests.support.cachenode import CacheNode
from tests.support.ports import free_port


def test_binary_password_file_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8 text" in l2_status._ping(
        L2Access("redis://127.0.0.1:1", str(path), str(tmp_path))
    )


@pytest.mark.parametrize("url", ["redis://" + "x" * 64 + ":1", "redis://a..b:1"])
def test_unresolvable_host_is_reported(url: str) -> None:
    assert "cannot be queried" in l2_status._ping(L2Access(url))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheNode]:
    one = CacheNode(tmp_path_factory.mktemp("node"), password="open sesame")
    yield one
    one.kill()


def secret(tmp_path: Path, text: str) -> str:
    path = tmp_path / "password"
    path.write_text(text)
    return str(path)


def test_responding_server_is_healthy(node: CacheNode, tmp_path: Path) -> None:
    assert (
        l2_status._ping(L2Access(node.url, secret(tmp_path, "open sesame\n"), str(tmp_path))) == ""
    )


@pytest.mark.parametrize("password", ["", "wrong"])
def test_rejected_password_is_reported(node: CacheNode, tmp_path: Path, password: str) -> None:
    path = secret(tmp_path, password) if password else ""
    assert "rejects the password" in l2_status._ping(L2Access(node.url, path, str(tmp_path)))


@pytest.mark.parametrize(("kind", "is_well"), [("list", False), ("cluster", True)])
def test_all_standalone_servers_or_one_of_a_cluster_must_respond(
    node: CacheNode, tmp_path: Path, kind: str, is_well: bool
) -> None:
    away = free_port()
    url = f"redis://127.0.0.1:{node.port},127.0.0.1:{away}?nodes={kind}"
    problem = l2_status._ping(L2Access(url, secret(tmp_path, "open sesame"), str(tmp_path)))
    assert (problem == "") is is_well
    assert is_well or (f"127.0.0.1:{away}" in problem and str(node.port) not in problem)


def test_cluster_internal_name_is_not_queried(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    def unknown(*_args: object, **_facts: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    url = "redis://cache.llm.svc:6379"
    wanted = {
        "name": "demo",
        "model": "org/m",
        "cache": {"l2": {"enabled": True, "backend": "redis", "url": url}},
    }
    here = l2_status.check_l2(parse(wanted))
    assert here.part is not None
    assert not here.part.ready
    there = l2_status.check_l2(parse({**wanted, "placement": {"cluster": "prod"}}))
    assert there.part is not None
    assert there.part.ready
    assert "only in the cluster" in there.part.message
    assert there.access == L2Access(url, folder=str(settings.EMBERLINE.l2_secrets))
