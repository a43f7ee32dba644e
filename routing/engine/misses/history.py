"""Bounded history of prompts: which worker computed which prefix, and whether it lost it since.

A tenure is the time in which a worker keeps its cache: a restart, reset or removal ends it, and the
next prompt begins a new one. Ended tenures are kept for a while as the reason of later misses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from routing.engine.misses import attribution as causes
from routing.engine.misses.sketch import PromptChange
from routing.engine.policies import base
from routing.engine.policies.prefix_index import Level, PrefixIndex, common_length

if TYPE_CHECKING:
    from routing.engine.observe.decisions import Decision
    from routing.engine.policies.base import RequestFacts

HISTORY_BLOCKS: Final = 1_048_576  # of all tenures, 8 bytes each: more than a fleet's caches hold
HISTORY_RUNS: Final = 65_536  # distinct runs of blocks, about 400 bytes each
MIN_TENURE_BLOCKS: Final = 256
_SHRINK_BLOCKS: Final = 64  # by which a prompt shrinks a history of too many runs
MAX_ENDED = 32
ENDS_KEPT: Final = 16_384  # per generation, two of them; about 150 bytes each
REFRESH_S: Final = 5.0  # accuracy of the time of last use
EVICTIONS_KEPT: Final = 65_536  # per generation, two of them; about 150 bytes each
REPLACED_S: Final = 900.0  # between a worker and its replacement
_KEY_MASK: Final = 2**60 - 1
_WITHOUT_MATCHES: Final = ("session", "roundrobin")  # strategies that compare no caches

# End in blocks, bits of the tenures that computed up to there, time of the last use.
Span = tuple[int, int, float]


class SeenPrompt:
    """What was known of a prompt as it was placed."""

    __slots__ = ("change", "size", "spans")

    def __init__(
        self, spans: list[Span], change: PromptChange | None = None, size: int = 0
    ) -> None:
        self.spans = spans
        self.change = change
        self.size = size  # bytes, where compared


KNOWN: Final = SeenPrompt([])  # all of it, as of its last block
NEW: Final = SeenPrompt([])  # nothing of it
NOT_CACHEABLE: Final = SeenPrompt([])


@dataclass(slots=True, eq=False)
class Tenure:
    """Time of a worker's memory. `key`: its memory's name in the index."""

    worker: str
    slot: int
    key: str
    ended: str = ""  # cause of the end
    at: float = 0.0  # time of the end


class SeenPrefixes(PrefixIndex):
    """Prefix memories whose runs carry the time of their last use."""

    @property
    def runs(self) -> int:
        return len(self._runs)

    def spans(self, chain: Sequence[int]) -> list[Span]:
        """Return the match levels in order, like `levels`, with the time of their last use."""
        spans: list[Span] = []
        start, length = 0, len(chain)
        while start < length and (run := self._runs.get(chain[start])) is not None:
            end = start + len(run.blocks)
            whole = end <= length and chain[end - 1] == run.blocks[-1]
            if not whole:
                end = start + common_length(run.blocks, chain, start)
            if run.partly is not None:
                part: list[Level] = []
                self._partly_known(run, start, end, part)
                spans += [(blocks, bits, run.time) for blocks, bits in part]
            spans.append((end, run.holders, run.time))
            if not whole:
                break
            start = end
        return spans


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
        self._add(tenure, chain, now)

    def interrupted(self, worker: str, chain: Sequence[int], placed_at: float) -> None:
        """Note a prompt whose answer was cut off, maybe by the end of its worker's tenure."""
        for tenure in reversed(self._ended):
            if tenure.worker == worker and tenure.at >= placed_at:
                self._add(tenure, chain, placed_at)
                return
        self.used(worker, chain, placed_at, hit=False)

    def _add(self, tenure: Tenure, chain: Sequence[int], now: float) -> None:
        limit = self._limit // len(self._by_slot)
        if self._index.runs > self._runs:
            memory = self._index.memories.get(tenure.key)
            limit = min(limit, memory.blocks - _SHRINK_BLOCKS if memory is not None else 0)
        limit = max(limit, MIN_TENURE_BLOCKS)
        for run in self._index.remember(tenure.key, tenure.slot, chain, limit):
            run.time = now

    def end(self, worker: str, cause: str, now: float) -> Tenure | None:
        """End a worker's tenure: its cache is gone."""
        tenure = self._live.pop(worker, None)
        if tenure is None:
            return None
        tenure.ended = cause
        tenure.at = now
        self._ended.append(tenure)
        while len(self._ended) > MAX_ENDED:
            oldest = self._ended.popleft()
            self._index.forget(oldest.key)
            del self._by_slot[oldest.slot]
            self._free.append(oldest.slot)
        return tenure

    def drained(self, worker: str) -> Tenure | None:
        """Return the tenure of a worker that ended while draining, as scaled down."""
        for tenure in reversed(self._ended):
            if tenure.worker == worker:
                if tenure.ended != causes.LOST_ROLLOUT:
                    return None
                tenure.ended = causes.LOST_SCALE_DOWN
                return tenure
        return None

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
            tenure.worker == worker and tenure.at >= moment for tenure in self._ended
        )

    def ended(self) -> Sequence[Tenure]:
        """Return the ended tenures, the oldest first."""
        return self._ended


def missing_blocks(facts: RequestFacts, cached: int) -> Iterator[int]:
    """Yield the name of the first block behind the cached tokens, by block size."""
    if facts.blocks is not None:
        for size, names in facts.blocks.chains.items():
            if cached // size < len(names):
                yield names[cached // size]


@dataclass(slots=True, eq=False)
class _Departure:
    """Departure of a worker. `tenure` None: the worker had computed nothing."""

    at: float
    tenure: Tenure | None

    def name(self, cause: str) -> None:
        if self.tenure is not None:
            self.tenure.ended = cause


class Replacements:
    """Pair workers that left with workers that came, in either order: a rollout.

    Of several, the two that are nearest in time belong together. Other workers that left were
    scaled down.
    """

    def __init__(self) -> None:
        self._came: deque[tuple[float, _Departure | None]] = deque(maxlen=MAX_ENDED)
        self._left: deque[_Departure] = deque(maxlen=MAX_ENDED)

    def came(self, now: float) -> None:
        while self._left and now - self._left[0].at > REPLACED_S:
            self._left.popleft()
        newest = self._left.pop() if self._left else None
        if newest is not None:
            newest.name(causes.LOST_ROLLOUT)
        self._came.append((now, newest))

    def left(self, tenure: Tenure | None, now: float) -> None:
        departure = _Departure(now, tenure)
        for number in reversed(range(len(self._came))):
            arrived_at, other = self._came[number]
            if now - arrived_at < (REPLACED_S if other is None else abs(arrived_at - other.at)):
                self._came[number] = (arrived_at, departure)
                departure.name(causes.LOST_ROLLOUT)
                if other is not None:
                    other.name(causes.LOST_SCALE_DOWN)
                    self._left.appendleft(other)
                return
        self._left.append(departure)


class Evictions:
    """Last removals that workers reported, by block and worker, in two generations.

    `complete_since`: no later removal was forgotten.
    """

    def __init__(self, keep: int = EVICTIONS_KEPT) -> None:
        self.complete_since = 0.0
        self._keep = keep
        self._began = 0.0  # of the new generation
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
            self.complete_since, self._began = self._began, now

    def find(self, worker: str, name: int) -> tuple[int, float] | None:
        """Return the tier and time of a block's last removal."""
        key = (name ^ hash(worker)) & _KEY_MASK
        value = self._new.get(key)
        if value is None:
            value = self._old.get(key)
        return None if value is None else (value & 3, (value >> 2) / 1000)


class StoredBlocks:
    """When blocks were stored in L2, which reports no expiry; only kept where L2 has a TTL."""

    def __init__(self) -> None:
        self.ttl_s = 0
        self._times = Evictions()

    def add(self, names: Sequence[int], at: float, now: float) -> None:
        """`at`: by the worker's clock, 0: unknown."""
        at = min(at or now, now)
        for name in names if self.ttl_s else ():
            before = self._times.find("", name)
            renewed = before is not None and at - before[1] >= self.ttl_s
            self._times.add("", int(renewed), (name,), at)

    def expired(self, facts: RequestFacts, cached: int, began: float, now: float) -> bool:
        """Return True if L2 had dropped the first block behind the cached tokens by its TTL.

        A block that the request itself stored again counts by the time before (`began`).
        """
        if not self.ttl_s:
            return False
        removals = (self._times.find("", name) for name in missing_blocks(facts, cached))
        return any(
            removal is not None
            and (now - removal[1] >= self.ttl_s or (removal[1] >= began and removal[0] == 1))
            for removal in removals
        )


def placed_elsewhere(decision: Decision, scale: float) -> list[causes.Reach]:
    """Return the causes of tokens that another worker held."""
    best: dict[str, int] = {}
    for worker, matched, _, _, eligible in decision.candidates:
        if not matched or worker == decision.chosen:
            continue
        if decision.reason == base.PINNED:
            cause = causes.PLACED_PINNED
        elif not eligible or decision.reason == base.RETRY:
            cause = causes.PLACED_DOWN
        elif decision.strategy in _WITHOUT_MATCHES:
            cause = causes.PLACED_STRATEGY
        else:
            cause = causes.PLACED_LOAD
        best[cause] = max(best.get(cause, 0), round(matched * scale))
    return sorted(best.items(), key=lambda item: item[1])


def placed_unmatched(decision: Decision, indexed: bool) -> str:
    """Return the cause of tokens that another worker computed, and that were not matched there.

    `indexed`: KV events report its blocks, and would have reported their removal: they are late or
    lost, or its index is being rebuilt or not believed. The arm of a canary may have a strategy
    that compares no caches.
    """
    compares = decision.strategy not in _WITHOUT_MATCHES
    if decision.reason == base.PINNED and (indexed or not compares):
        return causes.PLACED_PINNED
    if not compares:
        return causes.PLACED_STRATEGY
    return causes.INDEX_STALE if indexed else causes.EVICTED_UNKNOWN
