"""vLLM tiering spec that runs on the CPU platform and leaves no files in /dev/shm.

On CPU the device copy is implemented here (vLLM's needs CUDA streams); on other platforms vLLM's is
used unchanged. As vLLM's connector requires, every job succeeds and is reported once. Copies run
inside submit_* on the model thread: there is no stream to overlap with, and a job finished at
submission cannot race the model. L1's file is unlinked once mapped on both sides. vLLM loads this
module through `spec_name` and `spec_module_path`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from cachetier.vllm_connector import shm
from cachetier.vllm_connector.compat import (
    CanonicalKVCaches,
    CPULoadStoreSpec,
    GPULoadStoreSpec,
    LoadStoreSpec,
    OffloadingConfig,
    OffloadingWorker,
    SharedOffloadRegion,
    TieringOffloadingSpec,
    TransferResult,
    is_cpu_platform,
    log,
)

# Place of a device block in L1: (device block, L1 chunk, index inside the chunk).
Place = tuple[int, int, int]


def placements(
    device: GPULoadStoreSpec, chunk_ids: list[int], blocks_per_chunk: int
) -> Iterator[tuple[int, list[Place]]]:
    """Yield per KV group its index and the places of its blocks.

    `block_indices` gives the group's offset in the request; its first block may be inside a chunk,
    at place `index % blocks_per_chunk`.
    """
    next_block = 0
    next_chunk = 0
    for group, size in enumerate(device.group_sizes):
        if size == 0:
            continue
        skip = device.block_indices[group] % blocks_per_chunk
        places = [
            (
                int(device.block_ids[next_block + i]),
                chunk_ids[next_chunk + (skip + i) // blocks_per_chunk],
                (skip + i) % blocks_per_chunk,
            )
            for i in range(size)
        ]
        yield group, places
        next_block += size
        next_chunk += -(-(skip + size) // blocks_per_chunk)
    if next_block != len(device.block_ids) or next_chunk != len(chunk_ids):
        raise ValueError(
            f"transfer names {len(device.block_ids)} blocks and {len(chunk_ids)} chunks, "
            f"its groups need {next_block} and {next_chunk}"
        )


class CpuCopyWorker(OffloadingWorker):
    """Copy worker; owns `region` and releases it at shutdown."""

    def __init__(
        self, kv_caches: CanonicalKVCaches, region: SharedOffloadRegion, blocks_per_chunk: int
    ) -> None:
        self._region: SharedOffloadRegion | None = region
        self._blocks_per_chunk = blocks_per_chunk
        self._group_refs = kv_caches.group_data_refs
        self._pages = [item.page_size_bytes for item in kv_caches.tensors]
        self._device = [
            item.tensor.view(torch.int8).view((-1, item.page_size_bytes))
            for item in kv_caches.tensors
        ]
        self._host = [
            region.create_next_worker_view(page * blocks_per_chunk) for page in self._pages
        ]
        self._finished: list[TransferResult] = []

    def submit_store(
        self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: LoadStoreSpec
    ) -> bool:
        return self._copy(job_id, src_spec, dst_spec, to_host=True)

    def submit_load(self, job_id: int, src_spec: LoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        return self._copy(job_id, dst_spec, src_spec, to_host=False)

    def _copy(
        self, job_id: int, device: GPULoadStoreSpec, host: LoadStoreSpec, *, to_host: bool
    ) -> bool:
        if not isinstance(host, CPULoadStoreSpec):
            raise TypeError(f"L1 places expected, got {type(host).__name__}")
        started = time.perf_counter()
        copied = 0
        chunk_ids = [int(chunk) for chunk in host.chunk_ids]
        for group, places in placements(device, chunk_ids, self._blocks_per_chunk):
            for ref in self._group_refs[group]:
                copied += self._copy_layer(ref.tensor_idx, ref.page_size_bytes, places, to_host)
        seconds = time.perf_counter() - started
        self._finished.append(TransferResult(job_id, True, copied, seconds))
        return True

    def _copy_layer(self, tensor: int, used: int, places: list[Place], to_host: bool) -> int:
        page = self._pages[tensor]
        device, host = self._device[tensor], self._host[tensor]
        for block, chunk, place in places:
            start = place * page
            in_l1 = host[chunk, start : start + used]
            in_device = device[block, :used]
            if to_host:
                in_l1.copy_(in_device)
            else:
                in_device.copy_(in_l1)
        return used * len(places)

    def get_finished(self) -> list[TransferResult]:
        finished, self._finished = self._finished, []
        return finished

    def wait(self, job_ids: set[int]) -> None:
        """Return at once: submitted jobs are finished."""

    def shutdown(self) -> None:
        self._device.clear()
        self._host.clear()
        if self._region is not None:
            self._region.cleanup()
            self._region = None


class EmberlineTieringSpec(TieringOffloadingSpec):
    """Tiering spec, built in each worker process and then in the engine process.

    vLLM registers KV caches before it creates the scheduler, so all workers have mapped L1 when the
    scheduler does.
    """

    _worker: Any

    def __init__(self, config: OffloadingConfig) -> None:
        super().__init__(config)
        if is_cpu_platform() and config.canonical_layout:
            raise ValueError(
                "canonical_layout is not supported on the CPU platform: remove it from "
                "kv_connector_extra_config"
            )

    def get_manager(self) -> Any:
        if self._manager is None:
            super().get_manager()
            region = self._scheduler_mmap
            if region is None or region._creator:
                raise RuntimeError(
                    "no worker created L1 before the scheduler requested it: the two would "
                    "not share memory"
                )
            shm.unlink_file(region.mmap_path)
        return self._manager

    def get_worker(self, kv_caches: CanonicalKVCaches) -> Any:
        if self._worker is None:
            for path in shm.sweep_dead_files():
                log.warning("Removed L1 file %s of a killed worker", path)
        if not is_cpu_platform():
            worker = super().get_worker(kv_caches)
            _unlink_region(getattr(worker, "_mmap_region", None))
            return worker
        if self._worker is None:
            self._worker = self._make_cpu_worker(kv_caches)
        return self._worker

    def _make_cpu_worker(self, kv_caches: CanonicalKVCaches) -> CpuCopyWorker:
        region = SharedOffloadRegion(
            engine_id=self._engine_id,
            num_chunks=self.num_chunks,
            rank=0 if self.replicated_layout else self.config.parallel.rank,
            kv_bytes_per_chunk=self.kv_bytes_per_chunk,
            cpu_page_size=self.cpu_page_size_per_worker,
        )
        _unlink_region(region)
        try:
            return CpuCopyWorker(kv_caches, region, self.blocks_per_chunk)
        except Exception:
            shm.unlink_file(region.mmap_path)
            region.cleanup()
            raise


def _unlink_region(region: SharedOffloadRegion | None) -> None:
    """Unlink L1's file here; vLLM would unlink it only on a clean exit."""
    if region is None or region.fd is None:
        return
    shm.lock_file(region.fd)
    region._creator = False
