from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.simulated import SimulatedWorker

Start = Callable[..., SimulatedWorker]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers, and ends them with the test."""
    started: list[SimulatedWorker] = []

    def begin(*flags: str, **options: object) -> SimulatedWorker:
        started.append(SimulatedWorker(tmp_path, *flags, **options))  # type: ignore[arg-type]
        return started[-1]

    yield begin
    for worker in started:
        worker.close()


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedWorker]:
    """One for all tests of a module which leave it as it was."""
    found = SimulatedWorker(tmp_path_factory.mktemp("worker"))
    yield found
    found.close()
