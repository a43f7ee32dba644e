"""`--memory @FILE`: a node which is resized by writing another size into a file."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import redis

from cachetier.engine.config import parse
from cachetier.engine.errors import ConfigError
from cachetier.engine.memory.size_file import MemoryFile
from cachetier.engine.store import Declined, DeclineReason
from tests.support.cachenode import CacheNode
from tests.support.waiting import until

MIB = 1024**2


class Sized:
    """Takes every size but those above `limit`."""

    def __init__(self) -> None:
        self.limit = 100 * MIB
        self.asked: list[int] = []

    def __call__(self, size: int, _now: float) -> Declined | None:
        self.asked.append(size)
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


def test_a_new_size_is_taken_once(path: Path, sized: Sized) -> None:
    followed = MemoryFile(str(path), 8 * MIB, sized)
    followed.look(0.0)
    assert sized.asked == []
    path.write_text("16MiB")
    followed.look(1.0)
    followed.look(2.0)
    assert sized.asked == [16 * MIB]


@pytest.mark.parametrize("nonsense", ["", "much", "-1", "1KiB", "0"])
def test_nonsense_changes_nothing_and_is_told_once(
    path: Path, sized: Sized, nonsense: str, caplog: pytest.LogCaptureFixture
) -> None:
    followed = MemoryFile(str(path), 8 * MIB, sized)
    path.write_text(nonsense)
    with caplog.at_level(logging.WARNING):
        for second in range(3):
            followed.look(float(second))
    assert sized.asked == []
    assert len(caplog.records) == 1


def test_a_file_that_is_gone_changes_nothing(path: Path, sized: Sized) -> None:
    followed = MemoryFile(str(path), 8 * MIB, sized)
    path.unlink()
    followed.look(0.0)
    assert sized.asked == []


def test_what_cannot_be_taken_now_is_tried_again(path: Path, sized: Sized) -> None:
    followed = MemoryFile(str(path), 8 * MIB, sized)
    path.write_text("200MiB")
    followed.look(0.0)
    sized.limit = 300 * MIB
    followed.look(1.0)
    followed.look(2.0)
    assert sized.asked == [200 * MIB, 200 * MIB]


def test_the_first_size_is_read_before_listening(path: Path, tmp_path: Path) -> None:
    config = parse(["--memory", f"@{path}"])
    assert (config.memory_bytes, config.memory_file) == (8 * MIB, str(path))
    with pytest.raises(ConfigError, match=r"--memory @.*missing cannot be read"):
        parse(["--memory", f"@{tmp_path / 'missing'}"])


def test_a_node_grows_and_shrinks_while_it_serves(path: Path, tmp_path: Path) -> None:
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
