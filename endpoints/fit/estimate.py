"""Capacity of a worker: weights, KV tokens, concurrent requests, and fixes for what does not fit.

Each figure has its formula. A verdict blocks only what vLLM itself would refuse to start. Unknown
models and machines give `Unknown`; nothing is guessed.

Not measured on a GPU: vLLM's memory beside weights and KV (CUDA context, graphs, NCCL:
`RUNTIME_BYTES` per GPU; activations of one batch: two of the widest rows). vLLM profiles it at
start, which decides where the verdict is `tight`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from endpoints.fit.model_shape import ModelShape

GIB = 1024**3
RUNTIME_BYTES = int(1.5 * GIB)
CPU_RUNTIME_BYTES = int(1.2 * GIB)
BATCH_TOKENS = 8192
"""vLLM's default max-num-batched-tokens on a large GPU; lower on smaller ones."""
HOST_SHARE = 0.9
"""Share of a node's memory for pods; the rest is reserved for system and kubelet."""
BLOCK = 16


class FitVerdict(StrEnum):
    FITS = "fits"
    TIGHT = "tight"
    DOES_NOT_FIT = "does_not_fit"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Machine:
    """One instance. `gpu_bytes` is per GPU."""

    name: str
    gpu: str
    gpus: int
    gpu_bytes: int
    host_bytes: int
    cpus: float


@dataclass(frozen=True, slots=True)
class WorkerRequirements:
    """Requirements of one worker, which uses `tensor` x `pipeline` x `data` GPUs. `max_context` 0:
    the model's maximum. `memory_bytes` excludes `l1_bytes`. `kv_bytes` fixes the KV memory (CPU); 0
    derives it from `utilization`.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    max_context: int = 0
    utilization: float = 0.92
    kv_each: float = 2.0
    dtype: str = ""
    quantization: str = ""
    memory_bytes: int = 0
    l1_bytes: int = 0
    kv_bytes: int = 0
    cpus: float = 0.0
    on_cpu: bool = False
    batch_tokens: int = BATCH_TOKENS


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """One row of the estimate. `unit`: bytes, tokens, or a noun."""

    label: str
    value: float
    unit: str
    formula: str = ""


@dataclass(frozen=True, slots=True)
class FitFinding:
    """Finding of the capacity check. `blocks`: vLLM or the cluster would refuse it. `field`: the
    field changed by the fix.
    """

    field: str
    message: str
    remedy: str
    code: str
    blocks: bool = True


@dataclass(frozen=True, slots=True)
class Fit:
    verdict: FitVerdict
    lines: tuple[MemoryLine, ...] = ()
    findings: tuple[FitFinding, ...] = ()
    capacity_tokens: int = 0
    concurrency: float = 0.0
    workers_per_machine: int = 0

    @property
    def blocking(self) -> tuple[FitFinding, ...]:
        return tuple(finding for finding in self.findings if finding.blocks)


def estimate(shape: ModelShape | None, machine: Machine | None, worker: WorkerRequirements) -> Fit:
    if shape is None:
        return _unknown("model", "The size of this model is unknown.", _UNKNOWN_MODEL)
    if machine is None:
        return _unknown(
            "placement.instance_types", "The machine type is unknown.", _UNKNOWN_MACHINE
        )
    weights = shape.weights(worker.dtype, worker.quantization)
    if worker.on_cpu:
        return _estimate_on_cpu(shape, worker, weights)
    return _estimate_on_gpus(shape, machine, worker, weights)


_UNKNOWN_MODEL = "The capacity is not checked before the start. See the model's config.json."
_UNKNOWN_MACHINE = "Set an instance type of the catalogue, or add yours to it."


def _unknown(field: str, message: str, remedy: str) -> Fit:
    return Fit(FitVerdict.UNKNOWN, findings=(FitFinding(field, message, remedy, "unknown", False),))


def _estimate_on_gpus(
    shape: ModelShape, machine: Machine, worker: WorkerRequirements, weights: int
) -> Fit:
    ranks = worker.tensor * worker.pipeline
    if ranks * worker.data > machine.gpus:
        finding = _too_many_gpus(machine, ranks * worker.data)
        return Fit(FitVerdict.DOES_NOT_FIT, findings=(finding,))
    if worker.data > 1:  # experts are split over all GPUs, the rest of the weights is not
        text = "The memory of data parallel engines is not estimated."
        return _unknown("worker_args", text, "The capacity is not checked before the start.")
    if shape.heads % worker.tensor:
        return Fit(FitVerdict.DOES_NOT_FIT, findings=(_uneven_heads(shape, worker),))
    each_weights = weights / ranks
    batch = _activations(shape, worker)
    usable = machine.gpu_bytes * worker.utilization
    room = usable - each_weights - RUNTIME_BYTES - batch
    token = shape.kv_token_bytes(worker.kv_each, worker.tensor) / worker.pipeline
    lines = [
        MemoryLine("Weights per GPU", each_weights, "bytes", f"all weights / {ranks} GPUs"),
        MemoryLine(
            "vLLM runtime", RUNTIME_BYTES + batch, "bytes", "runtime + activations, assumed"
        ),
        MemoryLine(
            "KV cache per GPU", max(room, 0.0), "bytes", f"{worker.utilization:g} of memory"
        ),
        MemoryLine("KV per token and GPU", token, "bytes", _kv_formula(shape)),
    ]
    findings: list[FitFinding] = []
    if room <= 0:
        findings.append(_no_room_finding(shape, machine, worker, weights))
    capacity = max(0, int(room / token) // BLOCK * BLOCK)
    findings += _context(shape, worker, capacity) if room > 0 else []
    per_machine = machine.gpus // ranks
    host, host_findings = _host_figures(machine, worker, per_machine)
    lines += host
    findings += host_findings
    return _build_fit(shape, worker, lines, findings, capacity, per_machine)


def _estimate_on_cpu(shape: ModelShape, worker: WorkerRequirements, weights: int) -> Fit:
    token = shape.kv_token_bytes(worker.kv_each)
    capacity = int(worker.kv_bytes / worker.data / token) // BLOCK * BLOCK
    weights *= worker.data
    need = weights + worker.kv_bytes + CPU_RUNTIME_BYTES * worker.data
    lines = [
        MemoryLine("Weights", weights, "bytes", "in memory, as float32"),
        MemoryLine("KV cache", worker.kv_bytes, "bytes", "1/8 of the worker's memory"),
        MemoryLine("KV per token", token, "bytes", _kv_formula(shape)),
    ]
    findings = list(_context(shape, worker, capacity))
    if worker.memory_bytes and need > worker.memory_bytes:
        gib = need / GIB * 8 / 7  # KV takes an eighth of the memory
        findings.append(
            FitFinding(
                "resources.memory_gib",
                f"Weights, KV cache and process need {need / GIB:.1f} GiB; "
                f"the worker has {worker.memory_bytes / GIB:g}.",
                f"Use {gib:.0f} GiB or more.",
                "does_not_fit",
            )
        )
    return _build_fit(shape, worker, lines, findings, capacity, 0)


def _build_fit(
    shape: ModelShape,
    worker: WorkerRequirements,
    lines: list[MemoryLine],
    findings: list[FitFinding],
    capacity: int,
    per_machine: int,
) -> Fit:
    context = worker.max_context or shape.max_context
    concurrency = capacity / context if context else 0.0
    blocked = any(finding.blocks for finding in findings)
    if not blocked and context and concurrency < 2:
        findings.append(_few_requests(concurrency, context))
    lines += [
        MemoryLine("KV cache capacity (tokens)", capacity, "tokens", "KV cache / KV per token"),
        MemoryLine("Max context (tokens)", context, "tokens"),
        MemoryLine(
            "Concurrent requests at max context", concurrency, "at once", "tokens / context"
        ),
    ]
    if worker.l1_bytes:
        stored = worker.l1_bytes / shape.whole_kv_token_bytes(worker.kv_each)
        lines.append(MemoryLine("L1 capacity (tokens)", stored, "tokens", "L1 / KV per token"))
    verdict = (
        FitVerdict.DOES_NOT_FIT if blocked else FitVerdict.TIGHT if findings else FitVerdict.FITS
    )
    return Fit(verdict, tuple(lines), tuple(findings), capacity, concurrency, per_machine)


def _activations(shape: ModelShape, worker: WorkerRequirements) -> int:
    widest = 2 * shape.intermediate / worker.tensor + 4 * shape.hidden
    return int(worker.batch_tokens * widest * 2)


def _kv_formula(shape: ModelShape) -> str:
    if shape.latent_dim:
        return f"{shape.kv_layers} layers x {shape.latent_dim} latent"
    return f"2 x {shape.kv_layers} layers x {shape.kv_heads} KV heads x {shape.head_dim}"


def _too_many_gpus(machine: Machine, ranks: int) -> FitFinding:
    return FitFinding(
        "resources.gpus",
        f"A worker needs {ranks} GPUs; {machine.name} has {machine.gpus}.",
        f"Use at most {machine.gpus} GPUs, or a larger instance type.",
        "does_not_fit",
    )


def _uneven_heads(shape: ModelShape, worker: WorkerRequirements) -> FitFinding:
    fits = [n for n in (1, 2, 4, 8, 16) if shape.heads % n == 0]
    near = min(fits, key=lambda n: abs(n - worker.tensor))
    return FitFinding(
        "resources.gpus",
        f"The model's {shape.heads} attention heads cannot be split over {worker.tensor} GPUs.",
        f"Use {near} GPU{'s' if near != 1 else ''}.",
        "uneven_heads",
    )


def _no_room_finding(
    shape: ModelShape, machine: Machine, worker: WorkerRequirements, weights: int
) -> FitFinding:
    need = weights / (worker.tensor * worker.pipeline) + RUNTIME_BYTES + _activations(shape, worker)
    have = machine.gpu_bytes * worker.utilization
    return FitFinding(
        "resources.gpus",
        f"Weights and vLLM runtime need {need / GIB:.1f} GiB per GPU; "
        f"{machine.gpu or 'a GPU'} offers {have / GIB:.1f} of {machine.gpu_bytes / GIB:.0f} GiB.",
        _larger_machine_fix(shape, machine, worker, weights),
        "does_not_fit",
    )


def _larger_machine_fix(
    shape: ModelShape, machine: Machine, worker: WorkerRequirements, weights: int
) -> str:
    """Return the smallest number of this machine's GPUs that fits, else a quantization, else a
    larger machine.
    """
    have = machine.gpu_bytes * worker.utilization - RUNTIME_BYTES
    for gpus in (2, 4, 8, 16):
        if worker.tensor < gpus <= machine.gpus and shape.heads % gpus == 0:
            wider = WorkerRequirements(tensor=gpus, batch_tokens=worker.batch_tokens)
            if weights / gpus + _activations(shape, wider) < have * 0.95:
                return f"Use {gpus} GPUs per worker."
    packed = shape.weights(quantization="fp8") / (worker.tensor * worker.pipeline)
    if not worker.quantization and packed + _activations(shape, worker) < have * 0.95:
        return "Use --quantization=fp8, which halves the weights, or a larger instance type."
    return f"{weights / GIB:.0f} GiB of weights need a larger instance type."


def _context(shape: ModelShape, worker: WorkerRequirements, capacity: int) -> list[FitFinding]:
    context = worker.max_context or shape.max_context
    problems = []
    if shape.max_context and worker.max_context > shape.max_context:
        problems.append(
            FitFinding(
                "worker_args",
                f"--max-model-len={worker.max_context} exceeds the model's "
                f"{shape.max_context} tokens.",
                f"Use at most {shape.max_context}.",
                "context_too_long",
            )
        )
    if context > capacity:
        problems.append(
            FitFinding(
                "worker_args",
                f"The max context of {context} tokens exceeds the KV cache of {capacity} tokens: "
                "vLLM would not start.",
                f"Add --max-model-len={capacity}, or use more GPUs per worker."
                if capacity
                else "Use more memory per worker.",
                "context_does_not_fit",
            )
        )
    return problems


def _few_requests(concurrency: float, context: int) -> FitFinding:
    return FitFinding(
        "worker_args",
        f"Only {concurrency:.1f} concurrent requests of {context} tokens fit; others are queued.",
        "Lower --max-model-len if requests are shorter, or add GPUs.",
        "few_at_once",
        blocks=False,
    )


def _host_figures(
    machine: Machine, worker: WorkerRequirements, per_machine: int
) -> tuple[list[MemoryLine], list[FitFinding]]:
    each = worker.memory_bytes + worker.l1_bytes
    have = machine.host_bytes * HOST_SHARE
    lines = [
        MemoryLine("Workers per instance", per_machine, "workers", f"{machine.gpus} GPUs"),
        MemoryLine(
            "Host memory of all workers", each * per_machine, "bytes", "memory + L1 of each"
        ),
    ]
    if each > have:
        fix = max(0.0, (have - worker.memory_bytes) / GIB)
        return lines, [
            FitFinding(
                "cache.l1.size_gib" if worker.l1_bytes else "resources.memory_gib",
                f"A worker needs {each / GIB:g} GiB with L1; {machine.name} has "
                f"{have / GIB:.0f} GiB available.",
                f"Use at most {fix:.0f} GiB for L1." if fix >= 1 else "Reduce the memory.",
                "over_capacity",
            )
        ]
    if per_machine and each * per_machine > have:
        fitting = int(have // each)
        return lines, [
            FitFinding(
                "cache.l1.size_gib",
                f"Host memory limits {machine.name} to {fitting} of {per_machine} workers: "
                "its other GPUs stay unused.",
                f"Use at most {max(0.0, have / per_machine - worker.memory_bytes) / GIB:.0f} GiB "
                "for L1 to use all GPUs.",
                "gpus_left_empty",
                blocks=False,
            )
        ]
    return lines, []
