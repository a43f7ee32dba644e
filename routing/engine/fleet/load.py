"""In-flight load per worker, and workers ordered by load.

Load is counted at dispatch, not scraped, so it is never stale, and returns to zero when the last
request ends. `WorkersByLoad` is updated incrementally. policies/cost.py has the formula.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from routing.engine.policies import cost
from routing.engine.policies.load_order import Entry, RoutingTarget


class LoadedTarget(RoutingTarget):
    """A worker with what this module counts.

    `backlog`: prompt tokens sent and not computed yet, as far as observed. `decoding`: requests
    that have begun to answer. `occupied`: prompt tokens of all routers' requests in flight, cached
    or not; `prompts`: the same by hash_parts: this router's requests and peers that have such,
    tokens, the former. `changed_prompts`: of this router, begun or ended since published.
    `cache_tokens` 0: unknown. `weight`: load multiplier, > 1 during slow start. `pace`: time
    for the same work relative to the fastest workers (fleet.pace).
    """

    __slots__ = (
        "backlog", "cache_tokens", "changed_prompts", "decoding", "entry", "occupied", "order",
        "pace", "weight",
    )  # fmt: skip

    def __init__(self, worker_id: str) -> None:
        super().__init__(worker_id)
        self.backlog = 0
        self.decoding = 0
        self.occupied = 0
        self.changed_prompts: set[int] = set()
        self.cache_tokens = 0
        self.weight = self.pace = 1.0
        self.order: WorkersByLoad | None = None
        self.entry: Entry


def update_load(worker: LoadedTarget) -> None:
    decoding = worker.decoding
    waiting = worker.in_flight - decoding
    # cost.load, without its call
    load = worker.backlog + cost.ANSWER_TOKENS * decoding + cost.WAITING_TOKENS * waiting * waiting
    worker.load = load * worker.weight * worker.pace
    order = worker.order
    if order is not None:
        order.moved(worker)


def set_pace(worker: LoadedTarget, pace: float) -> None:
    if pace != worker.pace:
        worker.pace = pace
        worker.slowness = cost.slowness(pace)
        update_load(worker)


def hash_parts(chain: Sequence[int], tokens: int) -> Sequence[tuple[int, int]]:
    """Return the hashes by which a prompt in flight is known, with their parts of its tokens.

    Nearly all belong to a block at a quarter to half of the prompt: prompts that share it, as
    questions about one document, share most of their blocks. The last block dates the prompt in
    PrefixIndex.
    """
    count = len(chain)
    if not count:
        return ()
    middle, last = chain[1 << count.bit_length() - 1 >> 1], chain[-1]
    return ((last, tokens),) if middle == last else ((middle, tokens - 1), (last, 1))


def hold_prompt(worker: LoadedTarget, prompt: int, tokens: int) -> None:
    """Count a part of a peer's prompt in flight; one in flight already takes no more room."""
    held = worker.prompts.get(prompt)
    if held is None:
        held = worker.prompts[prompt] = [0, tokens, 0]
        _occupy(worker, tokens)
    held[0] += 1


def release_prompt(worker: LoadedTarget, prompt: int) -> None:
    held = worker.prompts[prompt]
    held[0] -= 1
    if not held[0]:
        del worker.prompts[prompt]
        _occupy(worker, -held[1])


def _occupy(worker: LoadedTarget, tokens: int) -> None:
    worker.occupied += tokens
    if worker.cache_tokens:
        worker.spare = cost.spare(worker.cache_tokens, worker.occupied)


def _changed(parts: set[int], part: int) -> None:
    """Note a change; a second one undoes the first."""
    if part in parts:
        parts.discard(part)
    else:
        parts.add(part)


class RequestCharge:
    """Load of one request on one worker, from dispatch to its end."""

    __slots__ = ("_decoding", "_parts", "_uncached", "work", "worker")

    def __init__(
        self, worker: LoadedTarget, uncached: int, tokens: int = 0, chain: Sequence[int] = ()
    ) -> None:
        """Add the request; `uncached`: prompt tokens to compute, of `tokens` with these blocks."""
        self.worker = worker
        self._parts = hash_parts(chain, tokens)
        self._uncached = uncached
        self._decoding = False
        worker.in_flight += 1
        worker.backlog += uncached
        self.work = worker.backlog + cost.ANSWER_TOKENS * worker.decoding  # for fleet.pace
        # hold_prompt and release_prompt, without their calls
        prompts, fresh = worker.prompts, 0
        for part, size in self._parts:
            held = prompts.get(part)
            if held is None:
                held = prompts[part] = [0, size, 0]
                fresh += size
            held[0] += 1
            held[2] += 1
            if held[2] == 1:
                _changed(worker.changed_prompts, part)
        if fresh:
            _occupy(worker, fresh)
        update_load(worker)

    def left(self, tokens: int) -> None:
        """Lower the remaining prompt tokens to at most `tokens`."""
        done = self._uncached - max(tokens, 0)
        if done > 0:
            self._uncached -= done
            self.worker.backlog -= done
            update_load(self.worker)

    def answered(self) -> None:
        """Record the first answer byte: the prompt is computed."""
        worker = self.worker
        worker.backlog -= self._uncached
        self._uncached = 0
        worker.decoding += 1
        self._decoding = True
        update_load(worker)

    def end(self) -> None:
        """Remove the request; call exactly once."""
        worker = self.worker
        worker.in_flight -= 1
        worker.backlog -= self._uncached
        prompts, gone = worker.prompts, 0
        for part, _ in self._parts:
            held = prompts[part]
            held[0] -= 1
            held[2] -= 1
            if not held[2]:
                _changed(worker.changed_prompts, part)
                if not held[0]:
                    del prompts[part]
                    gone += held[1]
        if gone:
            _occupy(worker, -gone)
        if self._decoding:
            worker.decoding -= 1
        update_load(worker)


def load_bucket(load: float) -> int:
    """Return the load bucket: loads within an eighth share one; monotonic in load."""
    whole = int(load)
    if whole < 8:
        return max(whole, 0)
    shift = whole.bit_length() - 4
    return (shift << 3) + (whole >> shift)


def bucket_minimum(number: int) -> float:
    if number < 8:
        return float(number)
    shift = (number >> 3) - 1
    return float((number - (shift << 3)) << shift)


class WorkersByLoad:
    """Workers by ascending load; ties by least recent pick. With `by_turn` load is ignored.

    Beside the exact order it keeps bitmasks of workers by load bucket, so that the least loaded of
    any set is found in a few steps. A change costs two bisections, which pays off only for large
    fleets.
    """

    __slots__ = ("_buckets", "_by_slot", "_by_turn", "_used", "_where", "bits", "entries", "total")

    def __init__(self, workers: Iterable[LoadedTarget], by_turn: bool = False) -> None:
        self._by_turn = by_turn
        self._by_slot: dict[int, LoadedTarget] = {}
        self._where: dict[int, int] = {}  # slot -> bucket
        self._buckets: defaultdict[int, int] = defaultdict(int)
        self._used = 0
        self.bits = 0
        self.entries: list[Entry] = []
        self.total = 0.0
        for worker in workers:
            load = 0.0 if by_turn else worker.load
            worker.order = self
            worker.entry = (load, worker.last_pick, worker.id, worker)
            self.entries.append(worker.entry)
            self.total += load
            self.bits |= 1 << worker.slot
            self._by_slot[worker.slot] = worker
            self._put(worker.slot, load_bucket(load))
        self.entries.sort()

    def moved(self, worker: LoadedTarget) -> None:
        entries = self.entries
        old = worker.entry
        del entries[bisect_left(entries, old)]
        load = 0.0 if self._by_turn else worker.load
        worker.entry = new = (load, worker.last_pick, worker.id, worker)
        insort(entries, new)
        self.total += load - old[0]
        slot = worker.slot
        number = load_bucket(load)
        before = self._where[slot]
        if number != before:
            rest = self._buckets[before] ^ 1 << slot
            if rest:
                self._buckets[before] = rest
            else:
                del self._buckets[before]
                self._used ^= 1 << before
            self._put(slot, number)

    def _put(self, slot: int, number: int) -> None:
        self._where[slot] = number
        self._buckets[number] |= 1 << slot
        self._used |= 1 << number

    def lightest(self, bits: int, turn: int, count: int) -> list[RoutingTarget]:
        """Return up to `count` of the least loaded workers in `bits` (by bucket); `turn` rotates
        the start among ties.
        """
        buckets = self._buckets
        used = self._used
        while used:
            number = used & -used
            lightest_bits = buckets[number.bit_length() - 1] & bits
            if lightest_bits:
                return self.some(lightest_bits, turn, count)
            used ^= number
        return []

    def up_to(self, good: Callable[[float], bool], bits: int) -> int:
        """Return the subset of `bits` whose load satisfies `good`, a predicate that is monotonic in
        load.
        """
        low, high = 0, self._used.bit_length()  # first bucket that is not good
        while low < high:
            middle = (low + high) // 2
            if good(bucket_minimum(middle)):
                low = middle + 1
            else:
                high = middle
        used = self._used
        mask = used & (1 << low) - 1
        if mask == used:
            return bits & self.bits
        near = 0
        while mask:
            number = mask & -mask
            near |= self._buckets[number.bit_length() - 1]
            mask ^= number
        return near & bits

    def some(self, bits: int, turn: int, count: int) -> list[RoutingTarget]:
        bits &= self.bits
        if bits.bit_count() > count:
            below = (1 << turn % bits.bit_length()) - 1
            bits, later = bits & ~below, bits & below
        else:
            later = 0
        targets: list[RoutingTarget] = []
        while len(targets) < count:
            if not bits:
                if not later:
                    break
                bits, later = later, 0
            lowest = bits & -bits
            targets.append(self._by_slot[lowest.bit_length() - 1])
            bits ^= lowest
        return targets
