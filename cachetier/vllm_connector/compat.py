"""vLLM version check and imports of version-dependent names.

An unsupported version raises a clear error naming the supported ones before any import fails. vLLM
marks these hooks experimental; test_compat_contract.py pins their signatures.
"""

from __future__ import annotations

import logging
import platform as machine

import vllm.version

KNOWN_VERSIONS = ("0.32",)


class UnsupportedVllmError(RuntimeError): ...


def check_version(version: str) -> str:
    """Return `major.minor` of a supported vLLM; raise UnsupportedVllmError for any other."""
    minor = ".".join(version.split(".")[:2])
    if minor not in KNOWN_VERSIONS:
        raise UnsupportedVllmError(
            f"Emberline's cache plug-in supports vLLM {', '.join(KNOWN_VERSIONS)}, not {version}. "
            "Install a matching vLLM, or start the worker without --kv-transfer-config."
        )
    return minor


VLLM_MINOR = check_version(vllm.version.__version__)

import torch  # noqa: E402  (only after the version check may an import fail)
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.metrics import OffloadingConnectorStats  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.v1.kv_offload.base import (  # noqa: E402
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    Locality,
    LookupResult,
    Medium,
    OffloadingCounterMetadata,
    OffloadingEvent,
    OffloadingGaugeMetadata,
    OffloadingMetricMetadata,
    OffloadingWorker,
    OffloadKey,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    TransferResult,
    get_offload_block_hash,
    get_offload_group_idx,
)
from vllm.v1.kv_offload.config import OffloadingConfig  # noqa: E402
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec  # noqa: E402
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion  # noqa: E402
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob  # noqa: E402
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec  # noqa: E402

__all__ = [
    "VLLM_MINOR",
    "CPULoadStoreSpec",
    "CanonicalKVCaches",
    "GPULoadStoreSpec",
    "JobResult",
    "LoadStoreSpec",
    "Locality",
    "LookupResult",
    "Medium",
    "OffloadKey",
    "OffloadingConfig",
    "OffloadingConnectorStats",
    "OffloadingCounterMetadata",
    "OffloadingEvent",
    "OffloadingGaugeMetadata",
    "OffloadingMetricMetadata",
    "OffloadingWorker",
    "ReqContext",
    "RequestOffloadingContext",
    "ScheduleEndContext",
    "SecondaryTierManager",
    "SharedOffloadRegion",
    "TieringOffloadingSpec",
    "TransferJob",
    "TransferResult",
    "UnsupportedVllmError",
    "check_version",
    "get_offload_block_hash",
    "get_offload_group_idx",
    "is_cpu_platform",
    "log",
    "page_layout",
]

# A child of vLLM's logger, so that its handlers and prefix apply.
log = logging.getLogger("vllm.emberline")


def is_cpu_platform() -> bool:
    return bool(current_platform.is_cpu())


def page_layout() -> dict[str, object]:
    """Return the facts that determine KV byte layout inside a page; layouts must never mix.

    vLLM's CPU attention packs keys by instruction set (AMX, AVX-512, NEON); a GPU's attention
    backend depends on its compute capability.
    """
    if is_cpu_platform():
        return {
            "platform": "cpu",
            "machine": machine.machine(),
            "amx": bool(torch.cpu._is_amx_tile_supported()),
            "avx512": bool(torch.cpu._is_avx512_supported()),
        }
    capability = current_platform.get_device_capability()
    return {
        "platform": str(current_platform.device_type),
        "capability": "" if capability is None else f"{capability.major}.{capability.minor}",
    }
