"""L1 memory is released however a real vLLM worker ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import cachefaults
from tests.support.vllm.fixtures import TieredPair
from tests.support.vllm.router_process import text
from tests.support.vllm.worker import Worker

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


def l1_files(worker: Worker) -> list[Path]:
    """Return the files in /dev/shm that the worker created for L1."""
    found = re.findall(r"Created mmap file (/dev/shm/vllm_offload_[^ ]+)", worker.log.read_text())
    assert found
    return [Path(name) for name in found]


def test_no_name_of_l1_is_left_while_workers_run(vllm_tiered: TieredPair) -> None:
    """So that even SIGKILL, at any moment from here on, releases the memory."""
    for worker in (vllm_tiered.a, vllm_tiered.b):
        assert not any(path.exists() for path in l1_files(worker))


def test_a_worker_ends_in_good_order_while_l2_is_silent(vllm_tiered: TieredPair) -> None:
    """Stores are in flight to a black hole when it receives SIGTERM. B has ended after this."""
    worker, proxy = vllm_tiered.b, vllm_tiered.proxy
    before = len(worker.log.read_text())
    proxy.cut_all()
    proxy.fault = cachefaults.silent
    try:
        worker.complete(text(500))
        worker.process.terminate()
        worker.process.wait(timeout=60)
    finally:
        proxy.fault = cachefaults.passing
        proxy.cut_all()
    log = worker.log.read_text()[before:]
    assert "Application shutdown complete" in log
    assert "EngineCore encountered a fatal error" not in log
    assert not any(path.exists() for path in l1_files(worker))


def test_a_killed_worker_leaves_no_l1_behind(vllm_tiered: TieredPair) -> None:
    """A has ended after this."""
    vllm_tiered.a.kill()
    assert not any(path.exists() for path in l1_files(vllm_tiered.a))
