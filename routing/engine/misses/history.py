"""Bounded history of prompts: which worker computed which prefix, and whether it lost it since.

A tenure is the time in which a worker keeps its cache: a restart, reset or removal ends it, and the
next prompt begins a new one. Ended tenures are kept for a while as the reason of later misses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from routing.engine.misses.sketch import PromptChange
from routing.engine.policies.prefix_index import Level, PrefixIndex, common_length

HISTORY_BLOCKS = 1_048_576  # of all tenures, 8 bytes each: more than a fleet's caches hold
HISTORY_RUNS = 65_536  # distinct runs of blocks, about 400 bytes each
MIN_TENURE_BLOCKS = 256
_SHRINK_BLOCKS = 64  # by which a prompt shrinks a history of too many runs
MAX_ENDED = 32
ENDS_KEPT = 16_384  # per generation, two of them; about 150 bytes each
REFRESH_S = 5.0  # accuracy of the time of last use
EVICTIONS_KEPT = 65_536  # per generation, two of them; about 150 bytes each
_KEY_MASK = 2**60 - 1

# End in blocks, bits of the tenures that computed up to there, time of the last use.
Span = tuple[int, int, float]


@dataclass(slots=True, eq=False)
class SeenPrompt:
    """What was known of a prompt as it was placed."""

    spans: list[Span]
    change: PromptChange | None = None
    size: int = 0  # bytes, where compared


KNOWN = SeenPrompt([])  # all of it, as of its last block
NEW = SeenPrompt([])  # nothing of it
NOT_CACHEABLE = SeenPrompt([])


@dataclass(slots=True, eq=False)
class Tenure:
    """`key`: its memory's name in the index."""

    worker: str
    slot: int
    key: str
    ended: str = ""  # cause of the end
    at: float = 0.0  # time of the end
    fleet: int = 0  # number of workers when it ended


class SeenPrefixes(PrefixIndex):
    """Prefix memories whose runs carry the time of their last use."""

    @property
    def runs(self) -> int:
        return len(self._runs)

    def spans(self, chain: Sequence[int]) -> list[Span]:
        """Return the match levels in order, like `levels`, with the time of their last use."""
        found: list[Span] = []
        at, length = 0, len(chain)
        while at < length and (run := self._runs.get(chain[at])) is not None:
            end = at + len(run.blocks)
            whole = end <= length and chain[end - 1] == run.blocks[-1]
            if not whole:
                end = at + common_length(run.blocks, chain, at)
            if run.partly is not None:
                part: list[Level] = []
                self._partly_known(run, at, end, part)
                found += [(blocks, bits, run.time) for blocks, bits in part]
            found.append((end, run.holders, run.time))
            if not whole:
                break
            at = end
        return found


class PromptHistory:
    def __init__(self, limit: int = HISTORY_BLOCKS, runs: int = HISTORY_RUNS) -> None:
        self._limit = limit
        self._runs = runs
        self._index = SeenPrefixes()
        self.spans = self._index.spans
        self._live: dict[str, Tenure] = {}
        self._ended: deque[Tenure] = deque()
        self._by_slot: dict[int, Tenure] = {}
        self._free: list[int] = []
        self._ends: dict[int, float] = {}  # last blocks of prompts, by their time
        self._old_ends: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._index)

    @property
    def runs(self) -> int:
        return self._index.runs

    def knows(self, chain: Sequence[int]) -> bool:
        """Return True if a prompt with the same blocks was answered lately, on any worker."""
        return chain[-1] in self._ends or chain[-1] in self._old_ends

    def used(self, worker: str, chain: Sequence[int], now: float, hit: bool) -> None:
        """Note an answered prompt; a hit of one that was just noted changes nothing."""
        last = chain[-1]
        if hit and now - self._ends.get(last, 0.0) < REFRESH_S:
            return
        if len(self._ends) >= ENDS_KEPT:
            self._old_ends = self._ends
            self._ends = {}
        self._ends[last] = now
        self.remember(worker, chain, now)

    def remember(self, worker: str, chain: Sequence[int], now: float) -> None:
        tenure = self._live.get(worker)
        if tenure is None:
            slot = self._free.pop() if self._free else len(self._by_slot)
            tenure = Tenure(worker, slot, f"{worker}\n{slot}")
            self._live[worker] = self._by_slot[slot] = tenure
        limit = self._limit // len(self._by_slot)
        if self._index.runs > self._runs:
            memory = self._index.memories.get(tenure.key)
            limit = min(limit, memory.blocks - _SHRINK_BLOCKS if memory is not None else 0)
        limit = max(limit, MIN_TENURE_BLOCKS)
        for run in self._index.remember(tenure.key, tenure.slot, chain, limit):
            run.time = now

    def end(self, worker: str, cause: str, fleet: int, now: float) -> None:
        """End a worker's tenure: its cache is gone."""
        tenure = self._live.pop(worker, None)
        if tenure is None:
            return
        tenure.ended = cause
        tenure.at = now
        tenure.fleet = fleet
        self._ended.append(tenure)
        while len(self._ended) > MAX_ENDED:
            oldest = self._ended.popleft()
            self._index.forget(oldest.key)
            del self._by_slot[oldest.slot]
            self._free.append(oldest.slot)

    def here(self, worker: str) -> int:
        """Return the bit of a worker's tenure, or 0."""
        tenure = self._live.get(worker)
        return 1 << tenure.slot if tenure is not None else 0

    def live(self) -> int:
        bits = 0
        for tenure in self._live.values():
            bits |= 1 << tenure.slot
        return bits

    def workers(self, bits: int) -> list[str]:
        """Return the workers of live tenures with these bits."""
        return [worker for worker, tenure in self._live.items() if bits >> tenure.slot & 1]

    def ended_since(self, worker: str, moment: float) -> bool:
        return bool(self._ended) and any(
            one.worker == worker and one.at >= moment for one in self._ended
        )

    def ended(self) -> Sequence[Tenure]:
        """Return the ended tenures, the oldest first."""
        return self._ended


class Evictions:
    """Last removals that workers reported, by block and worker, in two generations."""

    def __init__(self, keep: int = EVICTIONS_KEPT) -> None:
        self._keep = keep
        self._new: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._new) + len(self._old)

    def add(self, worker: str, tier: int, names: Sequence[int | None], now: float) -> None:
        mark = hash(worker)
        value = int(now * 1000) << 2 | tier
        new = self._new
        for name in names:
            if name is not None:
                new[(name ^ mark) & _KEY_MASK] = value
        if len(new) > self._keep:
            self._old = new
            self._new = {}

    def find(self, worker: str, name: int) -> tuple[int, float] | None:
        """Return the tier and time of a block's last removal."""
        key = (name ^ hash(worker)) & _KEY_MASK
        value = self._new.get(key)
        if value is None:
            value = self._old.get(key)
        return None if value is None else (value & 3, (value >> 2) / 1000)
