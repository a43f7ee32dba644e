"""L1 size and memory arithmetic. Pure.

vLLM keeps L1 in rows: one row is one chunk of all ranks, rounded up to 4 KiB pages, and L1 is as
many whole rows as fit. LMCache and Mooncake take a size per rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachetier.rendering.spec import L1, RenderError, Shape

PAGE = 4096
MIB, GIB = 1024**2, 1024**3
# Other users of /dev/shm: vLLM's message queues between ranks, NCCL and torch buffers.
SHM_OTHER_BYTES = 64 * MIB
SHM_OTHER_BYTES_PER_RANK = 256 * MIB
LMCACHE_CHUNK_TOKENS = 256


@dataclass(frozen=True, slots=True)
class L1Rows:
    """L1 rows; `row_bytes` is 0 if the model's KV bytes are unknown (no rounding)."""

    tokens: int
    row_bytes: int
    count: int
    used_bytes: int

    @property
    def token_count(self) -> int:
        return self.count * self.tokens


def compute_rows(l1: L1, shape: Shape) -> L1Rows:
    """Return the whole rows that fit L1; raise RenderError if none does."""
    tokens = l1.chunk_tokens or shape.block_tokens
    raw = shape.kv_bytes_per_token * tokens * shape.ranks
    if not raw:
        return L1Rows(tokens, 0, 0, l1.size_bytes)
    row = -(-raw // PAGE) * PAGE
    count = l1.size_bytes // row
    if not count:
        raise RenderError(
            f"l1.size_bytes: {l1.size_bytes} is less than one chunk of {tokens} tokens "
            f"({row} bytes): set at least {row}, or use smaller chunks"
        )
    return L1Rows(tokens, row, count, count * row)


def shared_memory_bytes(used_bytes: int, shape: Shape) -> int:
    """Return the bytes /dev/shm must hold: L1 and the worker's other buffers."""
    besides = SHM_OTHER_BYTES + (shape.ranks - 1) * SHM_OTHER_BYTES_PER_RANK
    return -(-(used_bytes + besides) // MIB) * MIB


def explain_sizes(l1: L1, shape: Shape, found: L1Rows, shm_bytes: int) -> tuple[str, ...]:
    lines = [
        f"L1 is {format_size(l1.size_bytes)} for all {shape.ranks} ranks of a worker together."
    ]
    if shape.ranks == 1:
        lines = [f"L1 is {format_size(l1.size_bytes)} for the worker."]
    if found.row_bytes:
        raw = shape.kv_bytes_per_token * found.tokens * shape.ranks
        lines += [
            f"A chunk of {found.tokens} tokens is {shape.kv_bytes_per_token} bytes a token and "
            f"rank x {found.tokens} x {shape.ranks} = {raw} bytes, rounded up to whole pages of "
            f"{PAGE}: {found.row_bytes}.",
            f"{found.count} whole chunks fit: {found.token_count} tokens in "
            f"{format_size(found.used_bytes)}; "
            f"{l1.size_bytes - found.used_bytes} bytes stay unused.",
        ]
    else:
        lines.append("The model's KV bytes per token are unknown; sizes are not rounded.")
    lines.append(
        f"Shared memory (/dev/shm) must hold {format_size(shm_bytes)}: L1 and "
        f"{format_size(shm_bytes - found.used_bytes)} for queues between processes. "
        "A pod's memory is resources.memory_gib plus L1; the queues are part of the former."
    )
    return tuple(lines)


def per_rank(size_bytes: int, shape: Shape) -> int:
    return size_bytes // shape.ranks


def format_size(count: int) -> str:
    """Format bytes for display: 511.9 MiB, 80 GiB."""
    unit, name = (GIB, "GiB") if count >= 4 * GIB else (MIB, "MiB")
    return f"{count / unit:.1f}".removesuffix(".0") + f" {name}"
