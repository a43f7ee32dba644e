"""Shared-memory files: those of dead engines are removed, used and new ones kept."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachetier.vllm_connector import shm

LATER_S = shm.MIN_AGE_S + 1


def region(folder: Path, name: str = "vllm_offload_0000.mmap") -> Path:
    path = folder / name
    path.write_bytes(bytes(8192))
    return path


def sweep(folder: Path, after_s: float = LATER_S) -> list[Path]:
    return shm.sweep_dead_files(folder, now=time.time() + after_s)


def test_file_of_a_dead_engine_is_removed(tmp_path: Path) -> None:
    path = region(tmp_path)
    assert sweep(tmp_path) == [path]
    assert not path.exists()


def test_other_files_are_kept(tmp_path: Path) -> None:
    for name in ("vllm_offload_1.txt", "psm_1234", "sem.mp-1"):
        region(tmp_path, name)
    assert sweep(tmp_path) == []


def test_new_file_is_kept(tmp_path: Path) -> None:
    """Its engine may not have mapped it on both sides yet."""
    path = region(tmp_path)
    assert sweep(tmp_path, 1.0) == []
    assert path.exists()


_HOLD = """
import fcntl, mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
if sys.argv[2] == "lock":
    fcntl.flock(fd, fcntl.LOCK_SH)
if sys.argv[2] == "map":
    kept = mmap.mmap(fd, 4096)
    os.close(fd)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["open", "map", "lock"])
def holder(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", _HOLD, str(region(tmp_path)), request.param]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_file_in_use_is_kept_until_its_process_ends(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    assert sweep(tmp_path) == []
    holder.kill()
    holder.wait(60)
    assert len(sweep(tmp_path)) == 1


def test_lock_counts_where_processes_are_not_visible(tmp_path: Path) -> None:
    """Two containers may share /dev/shm and not see each other's processes."""
    path = region(tmp_path)
    fd = os.open(path, os.O_RDWR)
    shm.lock_file(fd)
    nothing = tmp_path / "proc"
    nothing.mkdir()
    later = time.time() + LATER_S
    assert shm.sweep_dead_files(tmp_path, proc=nothing, now=later) == []
    os.close(fd)
    assert shm.sweep_dead_files(tmp_path, proc=nothing, now=later) == [path]


def test_unlinked_memory_stays_with_its_mappers(tmp_path: Path) -> None:
    path = region(tmp_path)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8192) as one:
        with mmap.mmap(file.fileno(), 8192) as other:
            shm.unlink_file(str(path))
            shm.unlink_file(str(path))
            assert not path.exists()
            one[0] = 7
            assert other[0] == 7
