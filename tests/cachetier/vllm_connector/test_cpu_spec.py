"""Copies between device cache and L1 with vLLM's classes, in the vLLM environment.

Every layout: one and several KV groups, one and several blocks a chunk, blocks that begin inside a
chunk, padded pages. What is stored and loaded elsewhere must be the same bytes, and nothing else of
the device cache may change.
"""

from __future__ import annotations

import pytest

from tests.support.cachenode import ROOT
from tests.support.vllm.forks import run_vllm_python

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(120)]

_PROBE = """
import random, uuid, torch
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef, CanonicalKVCaches, CanonicalKVCacheTensor, GPULoadStoreSpec)
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from cachetier.vllm_connector.cpu_spec import CpuCopyWorker

BLOCKS, CHUNKS = 24, 12
for seed in range(60):
    rng = random.Random(seed)
    per_chunk = rng.choice((1, 1, 2, 4))
    layers = rng.randint(1, 3)
    groups = rng.randint(1, 2)
    page, used = 64, rng.choice((64, 48))
    row = -(-layers * groups * page * per_chunk // 4096) * 4096
    region = SharedOffloadRegion(str(uuid.uuid4()), CHUNKS, 0, row,
                                 layers * groups * page * per_chunk)
    tensors = [torch.randint(-128, 127, (BLOCKS, page), dtype=torch.int8)
               for _ in range(layers * groups)]
    refs = [[CanonicalKVCacheRef(g * layers + i, used) for i in range(layers)]
            for g in range(groups)]
    caches = CanonicalKVCaches([CanonicalKVCacheTensor(t, page) for t in tensors], refs)
    worker = CpuCopyWorker(caches, region, per_chunk)
    sizes = [rng.randint(0 if groups > 1 else 1, 5) for _ in range(groups)]
    starts = [rng.randint(0, 7) for _ in range(groups)]
    need = sum(-(-(s % per_chunk + n) // per_chunk) for n, s in zip(sizes, starts) if n)
    free = rng.sample(range(BLOCKS), BLOCKS)
    src, dst = free[:sum(sizes)], free[sum(sizes):2 * sum(sizes)]
    host = CPULoadStoreSpec(rng.sample(range(CHUNKS), need))
    before = [t.clone() for t in tensors]
    assert worker.submit_store(1, GPULoadStoreSpec(src, sizes, starts), host)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before)), "a store changed the device"
    assert worker.submit_load(2, host, GPULoadStoreSpec(dst, sizes, starts))
    done = worker.get_finished()
    assert [(r.job_id, r.success) for r in done] == [(1, True), (2, True)], done
    assert done[0].transfer_size == done[1].transfer_size == used * layers * sum(sizes)
    assert worker.get_finished() == []
    at = 0
    for g, n in enumerate(sizes):
        for i in range(layers):
            tensor, old = tensors[g * layers + i], before[g * layers + i]
            for s, d in zip(src[at:at + n], dst[at:at + n]):
                old[d, :used] = old[s, :used]
            assert torch.equal(tensor, old), (seed, g, i)
        at += n
    worker.wait({1, 2})
    try:
        worker.submit_store(3, GPULoadStoreSpec(src[:1], [1] + [0] * (groups - 1), starts),
                            CPULoadStoreSpec([0, 1, 2]))
    except ValueError:
        pass
    else:
        raise AssertionError("too many chunks were taken")
    import os
    os.unlink(region.mmap_path)
    region._creator = False
    worker.shutdown()
    worker.shutdown()
print("same bytes")
"""


def test_stored_and_loaded_bytes_are_equal_in_every_layout() -> None:
    done = run_vllm_python("-c", _PROBE, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip().endswith("same bytes")
