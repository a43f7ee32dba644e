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
    """Requirements of one worker, which uses `tensor` x `pipeline` GPUs. `max_context` 0: the
    model's maximum. `memory_bytes` excludes `l1_bytes`. `kv_bytes` fixes the KV memory (CPU); 0
    derives it from `utilization`.
    """

    tensor: int = 1
    pipeline: int = 1
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
    """`blocks`: vLLM or the cluster would refuse it. `field`: the field changed by the fix."""

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


def estimate(shape: ModelShape | None, machine: Machine | None, wish: WorkerRequirements) -> Fit:
    if shape is None:
        return _unknown("model", "The shape of this model is not known here.", _UNKNOWN_MODEL)
    if machine is None:
        return _unknown(
            "placement.instance_types", "What it runs on is not known.", _UNKNOWN_MACHINE
        )
    weights = shape.weights(wish.dtype, wish.quantization)
    if wish.on_cpu:
        return _estimate_on_cpu(shape, wish, weights)
    return _estimate_on_gpus(shape, machine, wish, weights)


_UNKNOWN_MODEL = "Nothing is checked before it starts: look at its config.json yourself."
_UNKNOWN_MACHINE = "Name an instance type of the catalogue, or add yours to it."


def _unknown(field: str, message: str, remedy: str) -> Fit:
    return Fit(FitVerdict.UNKNOWN, findings=(FitFinding(field, message, remedy, "unknown", False),))


def _estimate_on_gpus(
    shape: ModelShape, machine: Machine, wish: WorkerRequirements, weights: int
) -> Fit:
    ranks = wish.tensor * wish.pipeline
    if ranks > machine.gpus:
        return Fit(FitVerdict.DOES_NOT_FIT, findings=(_too_many_gpus(machine, ranks),))
    if shape.heads % wish.tensor:
        return Fit(FitVerdict.DOES_NOT_FIT, findings=(_uneven_heads(shape, wish),))
    each_weights = weights / ranks
    batch = _activations(shape, wish)
    usable = machine.gpu_bytes * wish.utilization
    room = usable - each_weights - RUNTIME_BYTES - batch
    token = shape.kv_token_bytes(wish.kv_each, wish.tensor) / wish.pipeline
    lines = [
        MemoryLine("Weights on each GPU", each_weights, "bytes", f"all weights / {ranks} GPUs"),
        MemoryLine(
            "vLLM's own room", RUNTIME_BYTES + batch, "bytes", "runtime + activations, assumed"
        ),
        MemoryLine(
            "Left for KV on each GPU", max(room, 0.0), "bytes", f"{wish.utilization:g} of memory"
        ),
        MemoryLine("KV of one token on each GPU", token, "bytes", _kv_formula(shape)),
    ]
    findings: list[FitFinding] = []
    if room <= 0:
        findings.append(_no_room_finding(shape, machine, wish, weights))
    capacity = max(0, int(room / token) // BLOCK * BLOCK)
    findings += _context(shape, wish, capacity) if room > 0 else []
    per_machine = machine.gpus // ranks
    host, host_findings = _host_figures(machine, wish, per_machine)
    lines += host
    findings += host_findings
    return _build_fit(shape, wish, lines, findings, capacity, per_machine)


def _estimate_on_cpu(shape: ModelShape, wish: WorkerRequirements, weights: int) -> Fit:
    token = shape.kv_token_bytes(wish.kv_each)
    capacity = int(wish.kv_bytes / token) // BLOCK * BLOCK
    need = weights + wish.kv_bytes + CPU_RUNTIME_BYTES
    lines = [
        MemoryLine("Weights", weights, "bytes", "in memory, as float32"),
        MemoryLine("Memory for KV", wish.kv_bytes, "bytes", "an eighth of the worker's memory"),
        MemoryLine("KV of one token", token, "bytes", _kv_formula(shape)),
    ]
    findings = list(_context(shape, wish, capacity))
    if wish.memory_bytes and need > wish.memory_bytes:
        gib = need / GIB * 8 / 7  # KV takes an eighth of the memory
        findings.append(
            FitFinding(
                "resources.memory_gib",
                f"Weights, KV and the process need {need / GIB:.1f} GiB; "
                f"the worker has {wish.memory_bytes / GIB:g}.",
                f"Give it {gib:.0f} GiB or more.",
                "does_not_fit",
            )
        )
    return _build_fit(shape, wish, lines, findings, capacity, 0)


def _build_fit(
    shape: ModelShape,
    wish: WorkerRequirements,
    lines: list[MemoryLine],
    findings: list[FitFinding],
    capacity: int,
    per_machine: int,
) -> Fit:
    context = wish.max_context or shape.max_context
    concurrency = capacity / context if context else 0.0
    blocked = any(finding.blocks for finding in findings)
    if not blocked and context and concurrency < 2:
        findings.append(_few_requests(concurrency, context))
    lines += [
        MemoryLine("Tokens in the GPUs' cache", capacity, "tokens", "left / KV of one token"),
        MemoryLine("Longest context asked for", context, "tokens"),
        MemoryLine("Callers at the longest context", concurrency, "at once", "tokens / context"),
    ]
    if wish.l1_bytes:
        stored = wish.l1_bytes / shape.whole_kv_token_bytes(wish.kv_each)
        lines.append(MemoryLine("Tokens in L1", stored, "tokens", "L1 / KV of one token"))
    verdict = (
        FitVerdict.DOES_NOT_FIT if blocked else FitVerdict.TIGHT if findings else FitVerdict.FITS
    )
    return Fit(verdict, tuple(lines), tuple(findings), capacity, concurrency, per_machine)


def _activations(shape: ModelShape, wish: WorkerRequirements) -> int:
    widest = 2 * shape.intermediate / wish.tensor + 4 * shape.hidden
    return int(wish.batch_tokens * widest * 2)


def _kv_formula(shape: ModelShape) -> str:
    if shape.latent_dim:
        return f"{shape.kv_layers} layers x {shape.latent_dim} latent"
    return f"2 x {shape.kv_layers} layers x {shape.kv_heads} KV heads x {shape.head_dim}"


def _too_many_gpus(machine: Machine, ranks: int) -> FitFinding:
    return FitFinding(
        "resources.gpus",
        f"A worker of {ranks} GPUs does not fit on {machine.name}, which has {machine.gpus}.",
        f"Use at most {machine.gpus} GPUs, or a larger instance type.",
        "does_not_fit",
    )


def _uneven_heads(shape: ModelShape, wish: WorkerRequirements) -> FitFinding:
    fits = [n for n in (1, 2, 4, 8, 16) if shape.heads % n == 0]
    near = min(fits, key=lambda n: abs(n - wish.tensor))
    return FitFinding(
        "resources.gpus",
        f"The model's {shape.heads} attention heads cannot be shared by {wish.tensor} GPUs.",
        f"Use {near} GPU{'s' if near != 1 else ''}.",
        "uneven_heads",
    )


def _no_room_finding(
    shape: ModelShape, machine: Machine, wish: WorkerRequirements, weights: int
) -> FitFinding:
    need = weights / (wish.tensor * wish.pipeline) + RUNTIME_BYTES + _activations(shape, wish)
    have = machine.gpu_bytes * wish.utilization
    return FitFinding(
        "resources.gpus",
        f"Weights and vLLM's own room need {need / GIB:.1f} GiB of each GPU; "
        f"{machine.gpu or 'one'} offers {have / GIB:.1f} of its {machine.gpu_bytes / GIB:.0f}.",
        _larger_machine_fix(shape, machine, wish, weights),
        "does_not_fit",
    )


def _larger_machine_fix(
    shape: ModelShape, machine: Machine, wish: WorkerRequirements, weights: int
) -> str:
    """Return the smallest number of this machine's GPUs that fits, else a quantization, else a
    larger machine.
    """
    have = machine.gpu_bytes * wish.utilization - RUNTIME_BYTES
    for gpus in (2, 4, 8, 16):
        if wish.tensor < gpus <= machine.gpus and shape.heads % gpus == 0:
            wider = WorkerRequirements(tensor=gpus, batch_tokens=wish.batch_tokens)
            if weights / gpus + _activations(shape, wider) < have * 0.95:
                return f"Give each worker {gpus} GPUs."
    packed = shape.weights(quantization="fp8") / (wish.tensor * wish.pipeline)
    if not wish.quantization and packed + _activations(shape, wish) < have * 0.95:
        return "Use --quantization=fp8, which halves the weights, or a larger instance type."
    return f"{weights / GIB:.0f} GiB of weights need a larger instance type."


def _context(shape: ModelShape, wish: WorkerRequirements, capacity: int) -> list[FitFinding]:
    context = wish.max_context or shape.max_context
    found = []
    if shape.max_context and wish.max_context > shape.max_context:
        found.append(
            FitFinding(
                "worker_args",
                f"--max-model-len={wish.max_context} is more than the model's "
                f"{shape.max_context} tokens.",
                f"Use at most {shape.max_context}.",
                "context_too_long",
            )
        )
    if context > capacity:
        found.append(
            FitFinding(
                "worker_args",
                f"One request of {context} tokens needs more KV than the {capacity} tokens that "
                "fit beside the weights: vLLM refuses to start.",
                f"Add --max-model-len={capacity}, or give the worker more GPUs."
                if capacity
                else "Give the worker more memory.",
                "context_does_not_fit",
            )
        )
    return found


def _few_requests(concurrency: float, context: int) -> FitFinding:
    return FitFinding(
        "worker_args",
        f"Only {concurrency:.1f} requests of {context} tokens fit at once; others wait.",
        "Lower --max-model-len if requests are shorter, or add GPUs.",
        "few_at_once",
        blocks=False,
    )


def _host_figures(
    machine: Machine, wish: WorkerRequirements, per_machine: int
) -> tuple[list[MemoryLine], list[FitFinding]]:
    each = wish.memory_bytes + wish.l1_bytes
    have = machine.host_bytes * HOST_SHARE
    lines = [
        MemoryLine("Workers on one instance", per_machine, "workers", f"{machine.gpus} GPUs"),
        MemoryLine("Host memory they need", each * per_machine, "bytes", "memory + L1 of each"),
    ]
    if each > have:
        fix = max(0.0, (have - wish.memory_bytes) / GIB)
        return lines, [
            FitFinding(
                "cache.l1.size_gib" if wish.l1_bytes else "resources.memory_gib",
                f"A worker's {each / GIB:g} GiB with L1 are more than the {have / GIB:.0f} that "
                f"{machine.name} can give.",
                f"Use at most {fix:.0f} GiB for L1." if fix >= 1 else "Ask for less memory.",
                "over_capacity",
            )
        ]
    if per_machine and each * per_machine > have:
        fitting = int(have // each)
        return lines, [
            FitFinding(
                "cache.l1.size_gib",
                f"Memory lets only {fitting} of {per_machine} workers onto one {machine.name}: "
                "its other GPUs stay empty.",
                f"Use at most {max(0.0, have / per_machine - wish.memory_bytes) / GIB:.0f} GiB "
                "for L1, and all GPUs are used.",
                "gpus_left_empty",
                blocks=False,
            )
        ]
    return lines, []
