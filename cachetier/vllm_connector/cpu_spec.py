"""vLLM tiering spec that runs on the CPU platform and leaves no files in /dev/shm.

On CPU the device copy is implemented here (vLLM's needs CUDA streams); on other platforms vLLM's is
used unchanged. L1's file is unlinked once mapped on both sides. vLLM loads this module through
`spec_name` and `spec_module_path`.
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
            self._sweep()
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

    def _sweep(self) -> None:
        for path in shm.sweep_dead_files():
            log.warning("Removed L1 file %s of a killed worker", path)


def _unlink_region(region: SharedOffloadRegion | None) -> None:
    """Unlink L1's file here; vLLM would unlink it only on a clean exit."""
    if region is None or region.fd is None:
        return
    shm.lock_file(region.fd)
    region._creator = False
