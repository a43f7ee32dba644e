"""Query how much of a prompt each worker holds, per tier.

Follows vLLM's scheduler: a gapless run on the device, continued in host memory, then in host memory
or storage. Cost: one lookup per block, independent of the number of workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from routing.engine.kv.holders import BITS, L1, L2_OWN, Holder, Rank
from routing.engine.kv.index import KEY_MASK, SHARD_MASK, Index

# Number of blocks, and the mask of holders whose run ends there.
_Ends = list[tuple[int, int]]


class Match(NamedTuple):
    """Prompt tokens that a rank need not compute, by tier."""

    gpu: int
    l1: int
    l2: int
    rank: int

    @property
    def tokens(self) -> int:
        return self.gpu + self.l1 + self.l2


@dataclass(slots=True, eq=False)
class Blocks:
    """Block names of a prompt: `chains` by block size, usable blocks only (match.usable_blocks)."""

    chains: Mapping[int, Sequence[int]]


@dataclass(slots=True, eq=False)
class Matches:
    """Match of a prompt with the index. `workers`: best rank of each worker, by id. `anywhere`:
    tokens that any worker can load from shared storage.
    """

    workers: dict[str, Match]
    anywhere: int


def usable_blocks(tokens: int, block_size: int) -> int:
    """Return the number of cacheable blocks: the engine always computes the last token."""
    return max(tokens - 1, 0) // block_size


def match(index: Index, chains: Mapping[int, Sequence[int]]) -> Matches:
    """Match the names of a prompt's usable blocks; `chains`: by block size (Index.block_sizes)."""
    spans, anywhere = _spans(index, chains)
    return Matches(_by_worker(index, spans), anywhere)


def match_ranks(
    index: Index, chains: Mapping[int, Sequence[int]], ranks: Iterable[Rank]
) -> dict[int, Match]:
    spans, anywhere = _spans(index, chains)
    by_rank = {rank.number: _rank_match(rank, spans) for rank in ranks}
    for number, rank_match in by_rank.items():
        if anywhere > rank_match.tokens:
            by_rank[number] = Match(
                rank_match.gpu, rank_match.l1, anywhere - rank_match.gpu - rank_match.l1, number
            )
    return by_rank


def _spans(index: Index, chains: Mapping[int, Sequence[int]]) -> tuple[dict[int, list[int]], int]:
    spans: dict[int, list[int]] = {}  # slot -> tokens at the end of device, L1 and all tiers
    anywhere = 0
    for size, names in chains.items():
        if not names:
            continue
        if index.tiered:
            ends, shared = _walk_tiers(index, names)
            anywhere = max(anywhere, shared * size)
        else:
            ends = (_walk_device(index, names), [], [])
        for column, end in enumerate(ends):
            for blocks, mask in end:
                _record_span(spans, column, blocks * size, mask)
    return spans, anywhere


def _record_span(spans: dict[int, list[int]], column: int, tokens: int, mask: int) -> None:
    while mask:
        low = mask & -mask
        slot = (low.bit_length() - 1) // BITS
        span = spans.get(slot)
        if span is None:
            span = spans[slot] = [0, 0, 0]
        if tokens > span[column]:
            span[column] = tokens
        mask ^= low


def _walk_device(index: Index, names: Sequence[int]) -> _Ends:
    """Fast path: only the device was reported."""
    shards = index.shards
    ends: _Ends = []
    alive = index.device_bits
    number = 0
    for number, name in enumerate(names):
        name &= KEY_MASK
        mask = shards[name & SHARD_MASK].get(name)
        if mask is None:
            break
        held = mask & alive
        if held != alive:
            if number:
                ends.append((number, alive ^ held))
            alive = held
            if not held:
                return ends
    else:
        number += 1
    if number and alive:
        ends.append((number, alive))
    return ends


def _walk_tiers(index: Index, names: Sequence[int]) -> tuple[tuple[_Ends, _Ends, _Ends], int]:
    """Return the ends of each holder's three runs, and of shared storage's own."""
    shards = index.shards
    living = index.device_bits
    shared_bits = index.shared_bits
    ends: tuple[_Ends, _Ends, _Ends] = ([], [], [])
    device = host = storage = 0  # holders still in that run
    shared = -1
    number = 0
    for number, name in enumerate(names):
        name &= KEY_MASK
        mask = shards[name & SHARD_MASK].get(name)
        if mask is None:
            break
        in_host = mask >> L1 & living
        beyond = in_host | mask >> L2_OWN & living
        if mask & shared_bits:
            beyond = living
        elif shared < 0:
            shared = number
        if number == 0:
            device = mask & living
            host = in_host & ~device
            storage = (mask >> L2_OWN & living) & ~device & ~host
            continue
        if lost := device & ~mask:
            ends[0].append((number, lost))
            device ^= lost
            host |= lost
        if lost := host & ~in_host:
            ends[1].append((number, lost))
            host ^= lost
            storage |= lost
        if lost := storage & ~beyond:
            ends[2].append((number, lost))
            storage ^= lost
        if not (device or host or storage or shared < 0):
            return ends, shared
    else:
        number += 1
    if number:
        ends[0].append((number, device))
        ends[1].append((number, device | host))
        ends[2].append((number, device | host | storage))
    return ends, number if shared < 0 else shared


def _by_worker(index: Index, spans: dict[int, list[int]]) -> dict[str, Match]:
    """Take the minimum over a rank's groups and the best rank of each worker."""
    workers: dict[str, Match] = {}
    ranks_done: set[Rank] = set()
    for slot, span in spans.items():
        holder = index.slots[slot]
        if holder is None:
            continue
        rank = holder.rank
        if len(rank.groups) == 1:  # most models: half of the cost with hundreds of holders
            spans_found = _span_match(rank, span)
        elif rank in ranks_done:
            continue
        else:
            ranks_done.add(rank)
            spans_found = _rank_match(rank, spans)
        if not spans_found.tokens:
            continue
        best = workers.get(rank.worker)
        if best is None or (spans_found.tokens, spans_found.gpu) > (best.tokens, best.gpu):
            workers[rank.worker] = spans_found
    return workers


def _rank_match(rank: Rank, spans: dict[int, list[int]]) -> Match:
    if not rank.groups:
        return Match(0, 0, 0, rank.number)
    return _span_match(rank, _shortest_spans(rank.groups.values(), spans))


def _span_match(rank: Rank, span: list[int]) -> Match:
    gpu, up_to_l1, up_to_all = span
    l1 = max(up_to_l1 - gpu, 0)
    return Match(gpu, l1, max(up_to_all - gpu - l1, 0), rank.number)


def _shortest_spans(groups: Iterable[Holder], spans: dict[int, list[int]]) -> list[int]:
    shortest: list[list[int]] = []
    for holder in groups:
        span = spans.get(holder.slot)
        if span is None:
            return [0, 0, 0]
        shortest.append(span)
    return [min(column) for column in zip(*shortest, strict=True)]
