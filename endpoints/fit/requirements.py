"""Worker requirements of an endpoint's spec, for the estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from endpoints.fit.estimate import BATCH_TOKENS, WorkerRequirements
from endpoints.spec.endpoint_spec import GIB, EndpointSpec
from endpoints.spec.validators import split_arguments
from endpoints.workload.worker_spec import KV_SHARE, tensor_parallel

_KV_BYTES = {"fp8": 1.0, "fp8_e4m3": 1.0, "fp8_e5m2": 1.0, "float32": 4.0}


def worker_requirements(spec: EndpointSpec) -> WorkerRequirements:
    flags = flag_values(spec.worker_args)
    on_cpu = spec.gpus == 0
    memory = int(spec.resources.memory_gib * GIB)
    tensor = int(_number(flags.get("--tensor-parallel-size"), tensor_parallel(spec)))
    dtype = flags.get("--dtype", "float32" if on_cpu else "")
    kv = flags.get("--kv-cache-dtype", "float32" if on_cpu else "")
    return WorkerRequirements(
        tensor=max(1, tensor),
        pipeline=spec.pipeline_parallel,
        data=spec.data_parallel,
        max_context=_tokens(flags.get("--max-model-len")),
        utilization=_number(flags.get("--gpu-memory-utilization"), 0.92),
        kv_each=_KV_BYTES.get(kv, 2.0),
        dtype="" if dtype == "auto" else dtype,
        quantization=flags.get("--quantization", ""),
        memory_bytes=memory,
        l1_bytes=spec.cache.l1.size_bytes if spec.cache.l1.enabled else 0,
        kv_bytes=int(_number(flags.get("--kv-cache-memory-bytes"), memory // KV_SHARE)),
        cpus=spec.resources.cpus,
        on_cpu=on_cpu,
        batch_tokens=int(_number(flags.get("--max-num-batched-tokens"), BATCH_TOKENS)),
    )


def flag_values(args: Sequence[str]) -> dict[str, str]:
    """Return the first value of each flag, "" without one. The last of equal flags wins."""
    return {flag: values[0] if values else "" for flag, values in split_arguments(args)}


def _tokens(text: str | None) -> int:
    """Parse a token count; vLLM accepts 4k (4,000) and 4K (4,096). "auto" and unreadable text give
    0.
    """
    units = {"k": 1000, "K": 1024, "m": 1_000_000, "M": 1024**2}
    if text and text[-1] in units:
        return int(_number(text[:-1], 0) * units[text[-1]])
    return int(_number(text, 0))


def _number(value: Any, otherwise: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return otherwise
    return number if 0 < number < 1e15 else otherwise
