"""Command line: parsed completely or rejected with a message."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import redis

from cachetier.engine.__main__ import main
from cachetier.engine.config import (
    MIB,
    ListenAddress,
    MemoryFile,
    parse,
    parse_listen_address,
    parse_size,
)
from cachetier.engine.errors import ConfigError
from cachetier.engine.store import Declined, DeclineReason
from tests.support.cachenode import CacheNode
from tests.support.waiting import until

MEMORY = ("--memory", "64MiB")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GiB", 1 << 30), ("512 MB", 512_000_000), ("1048576", 1 << 20), ("1.5kib", 1536)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 ZB", "1GiBx", "1e9"])
def test_invalid_sizes(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        parse_size(text)


def test_addresses() -> None:
    assert parse_listen_address("127.0.0.1:6400") == ListenAddress("127.0.0.1", 6400)
    assert parse_listen_address("[::1]:1") == ListenAddress("::1", 1)
    for text in ("6400", ":6400", "host:", "host:99999", "host:port"):
        with pytest.raises(ConfigError, match="is not an address"):
            parse_listen_address(text)


def test_transfer_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for cores, threads in ((1, 0), (2, 2), (64, 4)):
        monkeypatch.setattr("os.sched_getaffinity", lambda _pid, cores=cores: set(range(cores)))
        assert parse(MEMORY).transfer_threads == threads
    assert parse((*MEMORY, "--transfer-threads", "0")).transfer_threads == 0
    with pytest.raises(ConfigError, match="--transfer-threads -1 must be 0 to 64"):
        parse((*MEMORY, "--transfer-threads=-1"))


def test_a_disk() -> None:
    config = parse((*MEMORY, "--disk", "/with:colon:1GiB"))
    assert config.disk is not None
    assert (str(config.disk.path), config.disk.size_bytes) == ("/with:colon", 1024 * MIB)
    assert parse(MEMORY).disk is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("/x", "not PATH:SIZE"),
        ("relative:1GiB", "whole path"),
        ("/x:much", "not a size"),
        ("/x:1MiB", "at least 64MiB"),
    ],
)
def test_unusable_disk_is_rejected(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse((*MEMORY, "--disk", text))


@pytest.mark.parametrize("policy", ["lru", "s3fifo", "arc"])
def test_policies_are_configurable(policy: str) -> None:
    assert parse((*MEMORY, "--policy", policy)).policy == policy


def test_quotas() -> None:
    config = parse((*MEMORY, "--quota", "aa=2MiB", "--quota", "bb=64MiB"))
    assert config.quotas == {"aa": 2 * MIB, "bb": 64 * MIB}


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        (("aa",), "is not NAMESPACE=SIZE"),
        (("=1GiB",), "is not NAMESPACE=SIZE"),
        (("a:b=2MiB",), "is not NAMESPACE=SIZE"),
        (("aa=much",), "is not a size"),
        (("aa=2MiB", "aa=3MiB"), "names aa twice"),
        (("aa=1KiB",), "at least 1MiB"),
        (("aa=65MiB",), "at most --memory"),
    ],
)
def test_invalid_quotas(texts: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse((*MEMORY, *(word for text in texts for word in ("--quota", text))))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.org", "[::]"])
def test_remote_clients_need_a_password(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --password-file"):
        parse((*MEMORY, "--listen", f"{host}:6400"))
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    config = parse((*MEMORY, "--listen", f"{host}:6400", "--password-file", str(secret)))
    assert config.passwords == ("open sesame",)
    assert "sesame" not in repr(config)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost"])
def test_local_clients_need_no_password(host: str) -> None:
    assert parse((*MEMORY, "--listen", f"{host}:6400")).passwords == ()


def test_password_file_must_not_be_empty(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        parse((*MEMORY, "--password-file", str(tmp_path / "none")))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        parse((*MEMORY, "--password-file", str(tmp_path / "empty")))


def test_too_little_memory_is_rejected() -> None:
    with pytest.raises(ConfigError, match="too little"):
        parse(("--memory", "1000"))


def test_process_logs_the_reason_and_exits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MEMORY, "--disk", "/x"]) == 2
    assert "--disk '/x' is not PATH:SIZE" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a/b", "..", "-x", "a b", "/dev/shm/x"])
def test_shared_arena_has_a_plain_name(name: str) -> None:
    assert parse(["--memory", "1MiB", "--shm", "emberline-l2.0"]).shm == "emberline-l2.0"
    with pytest.raises(ConfigError, match="is not a name for a file in /dev/shm"):
        parse(["--memory", "1MiB", f"--shm={name}"])


MIB = 1024**2


class Sized:
    """Takes every size but those above `limit`."""

    def __init__(self) -> None:
        self.limit = 100 * MIB
        self.resizes: list[int] = []

    def __call__(self, size: int, _now: float) -> Declined | None:
        self.resizes.append(size)
        return (
            None if size <= self.limit else Declined(DeclineReason.BACKPRESSURE, "readers hold it")
        )


@pytest.fixture
def sized() -> Sized:
    return Sized()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "memory"
    found.write_text("8MiB\n")
    return found


def test_new_size_is_applied_once(path: Path, sized: Sized) -> None:
    followed = MemoryFile(str(path), 8 * MIB, sized)
    followed.poll(0.0)
    assert sized.resizes == []
    path.write_text("16MiB")
    followed.poll(1.0)
    followed.poll(2.0)
    assert sized.resizes == [16 * MIB]


@pytest.mark.parametrize("nonsense", ["", "much", "-1", "1KiB", "0"])
def test_invalid_file_changes_nothing_and_is_logged_once(
    path: Path, sized: Sized, nonsense: str, caplog: pytest.LogCaptureFixture
) -> None:
    followed = MemoryFile(str(path), 8 * MIB, sized)
    path.write_text(nonsense)
    with caplog.at_level(logging.WARNING):
        for second in range(3):
            followed.poll(float(second))
    assert sized.resizes == []
    assert len(caplog.records) == 1


def test_missing_file_changes_nothing(path: Path, sized: Sized) -> None:
    followed = MemoryFile(str(path), 8 * MIB, sized)
    path.unlink()
    followed.poll(0.0)
    assert sized.resizes == []


def test_failed_change_is_retried(path: Path, sized: Sized) -> None:
    followed = MemoryFile(str(path), 8 * MIB, sized)
    path.write_text("200MiB")
    followed.poll(0.0)
    sized.limit = 300 * MIB
    followed.poll(1.0)
    followed.poll(2.0)
    assert sized.resizes == [200 * MIB, 200 * MIB]


def test_initial_size_is_read_before_listening(path: Path, tmp_path: Path) -> None:
    config = parse(["--memory", f"@{path}"])
    assert (config.memory_bytes, config.memory_file) == (8 * MIB, str(path))
    with pytest.raises(ConfigError, match=r"--memory @.*missing cannot be read"):
        parse(["--memory", f"@{tmp_path / 'missing'}"])


def test_node_grows_and_shrinks_while_it_serves(path: Path, tmp_path: Path) -> None:
    node = CacheNode(tmp_path, memory=f"@{path}")
    try:
        with redis.Redis(port=node.port) as client:
            value = bytes(MIB)
            for number in range(6):
                client.set(f"a{number}", value)
            path.write_text("32MiB")
            until(
                lambda: node.metric("emberline_l2_capacity_bytes", medium="memory") == 32 * MIB,
                what="the node has grown",
            )
            assert client.exists(*(f"a{number}" for number in range(6))) == 6
            for number in range(20):
                client.set(f"b{number}", value)
            assert client.dbsize() == 26
            path.write_text("4MiB")
            until(
                lambda: node.metric("emberline_l2_used_bytes", medium="memory") <= 4 * MIB,
                what="the node has shrunk",
            )
            assert 0 < client.dbsize() < 4
        assert node.process.poll() is None
    finally:
        node.kill()
