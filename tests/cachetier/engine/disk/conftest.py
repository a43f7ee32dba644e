from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.l2disk import MIB, Disk

Open = Callable[..., Disk]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "disk"


@pytest.fixture
def open_disk(folder: Path) -> Iterator[Open]:
    """Opens tiers on one folder; they are closed after the test."""
    disks: list[Disk] = []

    def one(capacity: int = 16 * MIB, **options: int) -> Disk:
        disks.append(Disk(folder, capacity, **options))
        return disks[-1]

    yield one
    for disk in disks:
        disk.close()
