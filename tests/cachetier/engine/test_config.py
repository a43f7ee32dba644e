"""A command line is taken whole or refused in words; nothing is ignored."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachetier.engine.__main__ import main
from cachetier.engine.config import MIB, ListenAddress, parse, parse_listen_address, parse_size
from cachetier.engine.errors import ConfigError

MEMORY = ("--memory", "64MiB")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1GiB", 1 << 30), ("512 MB", 512_000_000), ("1048576", 1 << 20), ("1.5kib", 1536)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 ZB", "1GiBx", "1e9"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a size"):
        parse_size(text)


def test_places() -> None:
    assert parse_listen_address("127.0.0.1:6400") == ListenAddress("127.0.0.1", 6400)
    assert parse_listen_address("[::1]:1") == ListenAddress("::1", 1)
    for text in ("6400", ":6400", "host:", "host:99999", "host:port"):
        with pytest.raises(ConfigError, match="is not an address"):
            parse_listen_address(text)


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
def test_a_disk_which_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse((*MEMORY, "--disk", text))


@pytest.mark.parametrize("policy", ["lru", "s3fifo", "arc"])
def test_policies_may_be_asked_for(policy: str) -> None:
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
def test_quotas_which_are_none(texts: tuple[str, ...], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse((*MEMORY, *(word for text in texts for word in ("--quota", text))))


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.1", "example.org", "[::]"])
def test_others_reach_a_node_only_with_a_password(host: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --password-file"):
        parse((*MEMORY, "--listen", f"{host}:6400"))
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    config = parse((*MEMORY, "--listen", f"{host}:6400", "--password-file", str(secret)))
    assert config.passwords == ("open sesame",)
    assert "sesame" not in repr(config)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "[::1]", "localhost"])
def test_this_machine_needs_none(host: str) -> None:
    assert parse((*MEMORY, "--listen", f"{host}:6400")).passwords == ()


def test_a_password_file_must_hold_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        parse((*MEMORY, "--password-file", str(tmp_path / "none")))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        parse((*MEMORY, "--password-file", str(tmp_path / "empty")))


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match="too little"):
        parse(("--memory", "1000"))


def test_the_process_says_why_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*MEMORY, "--disk", "/x"]) == 2
    assert "--disk '/x' is not PATH:SIZE" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["a/b", "..", "-x", "a b", "/dev/shm/x"])
def test_a_shared_arena_has_a_plain_name(name: str) -> None:
    assert parse(["--memory", "1MiB", "--shm", "emberline-l2.0"]).shm == "emberline-l2.0"
    with pytest.raises(ConfigError, match="is not a name for a file in /dev/shm"):
        parse(["--memory", "1MiB", f"--shm={name}"])
