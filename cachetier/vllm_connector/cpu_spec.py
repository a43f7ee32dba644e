"""vLLM's tiering spec, made to run on the CPU platform and to leave nothing in /dev/shm.

On a CPU worker the device copy is ours (vLLM's needs CUDA streams); on any other platform every
copy is vLLM's own, untouched. On both, L1's file loses its name once mapped on both sides.
Loaded by vLLM through `spec_name` and `spec_module_path`; importing it does nothing.
"""

from __future__ import annotations

from typing import Any

from cachetier.vllm_connector import shm
from cachetier.vllm_connector.compat import (
    CanonicalKVCaches,
    OffloadingConfig,
    SharedOffloadRegion,
    TieringOffloadingSpec,
    is_cpu_platform,
    log,
)
from cachetier.vllm_connector.cpu_worker import CpuCopyWorker


class EmberlineTieringSpec(TieringOffloadingSpec):
    """Built once in each worker process and once in the engine process, in that order: vLLM
    registers the KV caches before it makes the scheduler, so when the scheduler's side has mapped
    L1 every worker has too."""

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
                    "L1 was not made by a worker before the scheduler asked for it: the two would "
                    "not share memory"
                )
            shm.forget_name(region.mmap_path)
        return self._manager

    def get_worker(self, kv_caches: CanonicalKVCaches) -> Any:
        if self._worker is None:
            self._sweep()
        if not is_cpu_platform():
            worker = super().get_worker(kv_caches)
            _adopt(getattr(worker, "_mmap_region", None))
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
        _adopt(region)
        try:
            return CpuCopyWorker(kv_caches, region, self.blocks_per_chunk)
        except Exception:
            shm.forget_name(region.mmap_path)
            region.cleanup()
            raise

    def _sweep(self) -> None:
        for path in shm.sweep():
            log.warning("Removed L1 file %s, left by a worker that was killed", path)


def _adopt(region: SharedOffloadRegion | None) -> None:
    """Take over the name of L1's file from vLLM, which would only remove it at a clean exit."""
    if region is None or region.fd is None:
        return
    shm.hold(region.fd)
    region._creator = False
