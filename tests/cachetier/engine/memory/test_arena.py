"""Arena: memory is allocated on use and released, and foreign memory is not touched."""

from __future__ import annotations

import mmap
import os
import re
import resource
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachetier.engine.memory.arena import PAGE_BYTES, Arena, ArenaError, Extent
from cachetier.wire import arena as wire
from tests.support.waiting import until

MIB = 1024 * 1024


@pytest.fixture
def name() -> Iterator[str]:
    one = f"emberline-test-{os.getpid()}-{secrets.token_hex(4)}"
    yield one
    Path(wire.FOLDER, one).unlink(missing_ok=True)


def fill(arena: Arena, extents: list[Extent], data: bytes) -> None:
    place = 0
    for view in arena.writable(extents):
        view[:] = data[place : place + len(view)]
        place += len(view)


def read(arena: Arena, extents: list[Extent]) -> bytes:
    return b"".join(arena.readable(extents))


def resident(path: Path) -> int:
    return path.stat().st_blocks * 512


@pytest.mark.parametrize("shared", [False, True])
def test_values_are_stored_at_their_offsets(name: str, shared: bool) -> None:
    arena = Arena(4 * MIB, shm=name if shared else "")
    values = {os.urandom(size): size for size in (1, PAGE_BYTES, PAGE_BYTES + 1, MIB)}
    places = {}
    for value, size in values.items():
        extents = arena.take(size)
        assert extents is not None
        assert sum(length for _, length in extents) == size
        fill(arena, extents, value)
        places[value] = extents
    assert all(read(arena, extents) == value for value, extents in places.items())
    assert arena.take(4 * MIB) is None
    for extents in places.values():
        arena.give(extents)
    whole = arena.take(4 * MIB)
    assert whole is not None and len(whole) == 1
    with pytest.raises(TypeError, match="read-only"):
        arena.readable(whole)[0][0] = 1
    arena.close()


def test_reader_finds_values_by_their_offsets(name: str) -> None:
    arena = Arena(4 * MIB, shm=name)
    data = os.urandom(100_000)
    extents = arena.take(len(data))
    assert extents is not None
    fill(arena, extents, data)
    path = Path(wire.FOLDER, name)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as other:
        header = wire.unpack(other[: wire.HEADER_BYTES])
        assert header == wire.Header(PAGE_BYTES, os.getpid(), arena.token, len(other))
        assert b"".join(other[at : at + size] for at, size in extents) == data
    assert path.stat().st_mode & 0o077 == 0, "others may read what clients stored"
    arena.close()
    assert not path.exists()


def test_memory_is_allocated_on_use_and_released_on_shrink(name: str) -> None:
    arena, path = Arena(32 * MIB, limit_bytes=64 * MIB, shm=name), Path(wire.FOLDER, name)
    assert resident(path) <= MIB
    first, second = arena.take(8 * MIB), arena.take(8 * MIB)
    assert first is not None and second is not None
    fill(arena, second, b"x" * 8 * MIB)
    assert resident(path) <= 20 * MIB
    arena.give(first)
    arena.resize(8 * MIB)
    assert arena.capacity_bytes == 8 * MIB
    assert resident(path) <= 9 * MIB
    assert arena.take(PAGE_BYTES) is None
    assert read(arena, second) == b"x" * 8 * MIB
    arena.resize(64 * MIB)
    rest = arena.take(56 * MIB)
    assert rest is not None
    fill(arena, rest, b"y" * 56 * MIB)
    assert read(arena, second) == b"x" * 8 * MIB
    arena.resize(128 * MIB)
    assert arena.capacity_bytes == 64 * MIB == arena.limit_bytes
    arena.close()


def test_private_memory_is_released_too() -> None:
    arena = Arena(64 * MIB)
    extents = arena.take(48 * MIB)
    assert extents is not None
    fill(arena, extents, b"x" * 48 * MIB)
    before = _resident_bytes()
    arena.give(extents)
    arena.resize(MIB)
    assert _resident_bytes() < before - 40 * MIB


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_memory_shortage_makes_the_arena_smaller(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not a SIGBUS in the middle of a value."""
    arena = Arena(16 * MIB, shm=name)
    first = arena.take(3 * MIB)
    assert first is not None

    def full(fd: int, offset: int, length: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    assert arena.take(8 * MIB) is None
    warm = 4 * MIB - PAGE_BYTES  # the header takes the first page
    assert arena.capacity_bytes == warm, "what was warmed already can be used"
    rest = arena.take(warm - 3 * MIB)
    assert rest is not None
    fill(arena, rest, b"z" * (warm - 3 * MIB))
    monkeypatch.undo()
    arena.resize(16 * MIB)
    assert arena.take(12 * MIB) is not None
    arena.close()


def test_excess_size_is_rejected_with_the_remedy(name: str) -> None:
    real = os.statvfs(wire.FOLDER)
    with pytest.raises(ArenaError, match=r"bytes free, this node needs .*reduce --memory"):
        Arena((real.f_bavail + 1) * real.f_frsize + PAGE_BYTES, shm=name)
    assert not Path(wire.FOLDER, name).exists()


# -- files of other nodes ----------------------------------------------------------------------
OWNER = """
import sys, signal
from cachetier.engine.memory.arena import Arena
arena = Arena(2**20, shm=sys.argv[1])
print("ready", flush=True)
signal.pause()
"""


@pytest.fixture
def owner(name: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, name], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_arena_of_a_running_node_is_kept(name: str, owner: subprocess.Popen[str]) -> None:
    with pytest.raises(ArenaError, match=re.escape(name) + " belongs to a running node"):
        Arena(MIB, shm=name)
    other = Arena(MIB, shm=name + "-other")
    assert Path(wire.FOLDER, name).exists(), "removed by a node of another name"
    other.close()


@pytest.mark.parametrize("suffix", ["", "-other"])
def test_arena_of_a_dead_node_is_removed_by_the_next(
    name: str, owner: subprocess.Popen[str], suffix: str
) -> None:
    path = Path(wire.FOLDER, name)
    before = path.stat().st_ino
    owner.kill()
    owner.wait(timeout=60)
    assert path.exists()
    arena = Arena(MIB, shm=name + suffix)
    until(lambda: not path.exists() or path.stat().st_ino != before, what="the leftover gone")
    arena.close()


def test_file_of_another_program_is_kept(name: str) -> None:
    path = Path(wire.FOLDER, name)
    path.write_bytes(b"precious" * 100)
    with pytest.raises(ArenaError, match="exists and is not an arena"):
        Arena(MIB, shm=name)
    Arena(MIB, shm=name + "-other").close()
    assert path.read_bytes() == b"precious" * 100
