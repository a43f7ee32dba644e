"""Radix tree of the prompt prefixes sent to each worker, with an LRU bound per worker.

A block's hash covers all blocks before it. Blocks always known together form one PrefixRun; holders
are a bitmask. A prompt's runs are touched from end to start, so that prefixes lose their end first,
as in vLLM. Splitting a run touches its first half for all its holders, the one deviation from exact
LRU. Prompts in flight are not evicted while others remain, as engines cannot evict their blocks;
each is found by its last block, older than those before it.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final

CACHED_NAMES: Final = 1024
MAX_DISPLACED_RUNS: Final = 64  # runs examined to date the blocks that a prompt displaces

Level = tuple[int, int]  # blocks, bits of the workers with at least that many


class PrefixRun:
    """Blocks known together. `holders` have all of them, `partly` (slot -> blocks) a prefix.
    `time`: last use, where the owner sets it.
    """

    __slots__ = ("blocks", "children", "holders", "parent", "partly", "time")

    def __init__(self, blocks: array[int], holders: int, parent: PrefixRun | None) -> None:
        self.blocks = blocks
        self.holders = holders
        self.parent = parent
        self.children = 0
        self.partly: dict[int, int] | None = None
        self.time = 0.0


class PrefixMemory:
    """Prefix memory of one worker; `runs` in LRU order, with the prompt that used them last.
    `running`: blocks of the prompts in flight, the last of each among them.
    """

    __slots__ = ("bit", "blocks", "id", "limit", "running", "runs", "slot")

    def __init__(self, worker_id: str, slot: int) -> None:
        self.id = worker_id
        self.slot = slot
        self.bit = 1 << slot
        self.runs: OrderedDict[PrefixRun, int] = OrderedDict()
        self.blocks = 0
        self.limit = 0
        self.running: Collection[int] = ()


def set_bits(bits: int) -> Iterator[int]:
    """Yield the positions of the set bits."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def common_length(blocks: Sequence[int], chain: Sequence[int], at: int) -> int:
    """Return how many blocks the run and `chain[at:]` share; the first is known to match."""
    low, high = 1, min(len(blocks), len(chain) - at)
    while low < high:
        middle = (low + high + 1) // 2
        if blocks[middle - 1] == chain[at + middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


class PrefixIndex:
    """Prefix memories of all workers, by id."""

    def __init__(self) -> None:
        self.memories: dict[str, PrefixMemory] = {}
        self.bits: dict[str, int] = {}  # mask bit of each memory
        self._names: dict[int, tuple[str, ...]] = {}
        self._by_slot: dict[int, PrefixMemory] = {}
        self._runs: dict[int, PrefixRun] = {}
        self.prompts = 0  # recorded so far, over all workers: the clock
        self.known = 0  # leading blocks of the last prompt that its worker had already

    def __len__(self) -> int:
        return sum(len(run.blocks) for run in self._runs.values())

    def levels(self, chain: Sequence[int]) -> list[Level]:
        """Return the match levels in order; the last is the longest match."""
        levels: list[Level] = []
        runs = self._runs
        position, length = 0, len(chain)
        while position < length:
            run = runs.get(chain[position])
            if run is None:
                break
            blocks = run.blocks
            end = position + len(blocks)
            whole = end <= length and chain[end - 1] == blocks[-1]
            if not whole:
                end = position + common_length(blocks, chain, position)
            if run.partly is not None:
                self._partly_known(run, position, end, levels)
            levels.append((end, run.holders))
            if not whole:
                break
            position = end
        return levels

    @staticmethod
    def _partly_known(run: PrefixRun, at: int, end: int, found: list[Level]) -> None:
        assert run.partly is not None
        bits = run.holders
        part: list[Level] = []
        for slot, count in sorted(run.partly.items(), key=lambda item: -item[1]):
            bits |= 1 << slot
            part.append((min(at + count, end), bits))
        found.extend(reversed(part))

    def names(self, bits: int) -> tuple[str, ...]:
        """Return the worker ids of a mask; cached, since few masks occur."""
        names = self._names.get(bits)
        if names is None:
            if len(self._names) >= CACHED_NAMES:
                self._names.clear()
            names = self._names[bits] = tuple(self._by_slot[slot].id for slot in set_bits(bits))
        return names

    def remember(
        self,
        worker_id: str,
        slot: int,
        chain: Sequence[int],
        limit: int,
        running: Collection[int] = (),
    ) -> list[PrefixRun]:
        """Record a prompt and return its runs; the worker's memory has room for `limit` blocks.
        `slot`: its unique bit position. `running`: see PrefixMemory; read at each eviction.
        """
        memory = self.memories.get(worker_id) or self._join(worker_id, slot)
        memory.limit = limit
        memory.running = running
        self.prompts = now = self.prompts + 1
        bit = memory.bit
        path: list[PrefixRun] = []
        parent: PrefixRun | None = None
        runs_by_key = self._runs
        held = 0
        position, length = 0, len(chain)
        while position < length:
            run = runs_by_key.get(chain[position])
            if run is None:
                added = self._append(parent, chain[position:], memory)
                if added is not None:
                    path.append(added)
                break
            blocks = run.blocks
            end = position + len(blocks)
            if end > length or chain[end - 1] != blocks[-1]:
                end = position + common_length(blocks, chain, position)
                run = self._part(run, end - position)
            if held == position:
                if run.holders & bit:
                    held = end
                elif run.partly is not None:
                    held = position + run.partly.get(memory.slot, 0)
            if not run.holders & bit:
                self._hold(run, memory)
            path.append(run)
            parent = run
            position = end
        self.known = held
        runs = memory.runs
        touch = runs.move_to_end
        for run in reversed(path):
            touch(run)
            runs[run] = now
        if memory.blocks > limit:
            self._shrink(memory, limit, path[-1] if path else None)
        return path

    def retract(self, worker_id: str, chain: Sequence[int], known: int, record: int) -> None:
        """Remove the blocks that prompt number `record` added behind its first `known` ones, unless
        another prompt has used them since.
        """
        memory = self.memories.get(worker_id)
        if memory is None:
            return
        added: list[PrefixRun] = []
        start, length = 0, len(chain)
        while start < length:
            run = self._runs.get(chain[start])
            if run is None or memory.runs.get(run) != record:
                break
            end = start + len(run.blocks)
            if end > length or chain[end - 1] != run.blocks[-1]:
                break  # a later prompt has extended it
            if start < known < end:
                self._part(run, known - start)
            if known < end:
                added.append(run)
            start = end
        for run in reversed(added):
            self._drop(run, memory)

    def displaced(self, worker_id: str, blocks: int) -> int:
        """Return the age of what `blocks` more would displace, as the number of the last prompt
        that used it; 0: there is room. Prompts in flight are not displaced.
        """
        memory = self.memories.get(worker_id)
        if memory is None:
            return 0
        excess = memory.blocks + blocks - memory.limit
        if excess <= 0:
            return 0
        newest = 0
        running = memory.running
        kept_runs: set[PrefixRun] = set()  # before the ends of prompts in flight
        for run, used in islice(memory.runs.items(), MAX_DISPLACED_RUNS):
            if run.blocks[-1] in running or run in kept_runs:
                if run.parent is not None:
                    kept_runs.add(run.parent)
                continue
            newest = used
            excess -= len(run.blocks)
            if excess <= 0:
                break
        return newest

    def limit(self, worker_id: str, limit: int) -> None:
        memory = self.memories.get(worker_id)
        if memory is not None:
            memory.limit = limit
            self._shrink(memory, limit)

    def forget(self, worker_id: str) -> None:
        memory = self.memories.pop(worker_id, None)
        if memory is None:
            return
        for run in list(memory.runs):  # ends of prefixes first
            self._drop(run, memory)
        del self.bits[worker_id]
        del self._by_slot[memory.slot]
        self._names.clear()

    def sizes(self) -> dict[str, int]:
        return {worker_id: memory.blocks for worker_id, memory in self.memories.items()}

    def chains(self, worker_id: str, most_blocks: int) -> list[array[int]]:
        """Return the prefixes remembered of a worker, least recently used first; the oldest are
        left out beyond `most_blocks`.
        """
        memory = self.memories.get(worker_id)
        covered: set[PrefixRun] = set()
        chains: list[array[int]] = []
        for run in list(memory.runs) if memory is not None else ():  # ends of prefixes first
            if run in covered:
                continue
            path: list[PrefixRun] = []
            before: PrefixRun | None = run
            while before is not None:
                path.append(before)
                before = before.parent
            covered.update(path)
            chain = array("Q")
            for part in reversed(path):
                chain.extend(part.blocks)
            if memory is not None and run.partly is not None and not run.holders & memory.bit:
                del chain[len(chain) - len(run.blocks) + run.partly.get(memory.slot, 0) :]
            chains.append(chain)
        total = 0
        for index in range(len(chains) - 1, -1, -1):
            total += len(chains[index])
            if total > most_blocks:
                return chains[index + 1 :]
        return chains

    def _join(self, worker_id: str, slot: int) -> PrefixMemory:
        assert slot not in self._by_slot
        memory = self.memories[worker_id] = self._by_slot[slot] = PrefixMemory(worker_id, slot)
        self.bits[worker_id] = memory.bit
        return memory

    def _append(
        self, parent: PrefixRun | None, chain: Sequence[int], memory: PrefixMemory
    ) -> PrefixRun | None:
        """Append unknown blocks (`chain`, kept) behind `parent`; return None if merged into it."""
        memory.blocks += len(chain)
        if parent is not None:
            alone = parent.holders == memory.bit and parent.partly is None
            if alone and not parent.children:
                parent.blocks.extend(chain)
                return None
            parent.children += 1
        blocks = chain if type(chain) is array else array("Q", chain)
        run = PrefixRun(blocks, memory.bit, parent)
        self._runs[chain[0]] = run
        memory.runs[run] = self.prompts
        return run

    def _hold(self, run: PrefixRun, memory: PrefixMemory) -> None:
        memory.blocks += len(run.blocks) - self._partial(run, memory)
        run.holders |= memory.bit
        memory.runs[run] = self.prompts

    @staticmethod
    def _partial(run: PrefixRun, memory: PrefixMemory) -> int:
        """Remove a worker's partial hold; return its block count."""
        if run.partly is None:
            return 0
        count = run.partly.pop(memory.slot, 0)
        if not run.partly:
            run.partly = None
        return count

    def _part(self, run: PrefixRun, count: int) -> PrefixRun:
        """Split off the first `count` blocks as a new run; the rest keeps its place."""
        head = PrefixRun(run.blocks[:count], run.holders, run.parent)
        head.children = 1
        head.time = run.time
        self._runs[head.blocks[0]] = head
        del run.blocks[:count]
        run.parent = head
        self._runs[run.blocks[0]] = run
        for slot in set_bits(run.holders):
            memory = self._by_slot[slot]
            self._used(head, memory, memory.runs[run])
        partly, run.partly = run.partly, None
        for slot, length in (partly or {}).items():
            memory = self._by_slot[slot]
            self._used(head, memory, memory.runs[run])
            if length >= count:
                head.holders |= memory.bit
            else:
                head.partly = head.partly or {}
                head.partly[slot] = length
            if length > count:
                run.partly = run.partly or {}
                run.partly[slot] = length - count
            else:
                del memory.runs[run]
        return head

    @staticmethod
    def _used(run: PrefixRun, memory: PrefixMemory, used: int) -> None:
        """Touch a run, last used by prompt `used`; runs before it stay newer."""
        memory.runs[run] = used
        memory.runs.move_to_end(run)
        before = run.parent
        while before is not None:
            memory.runs.move_to_end(before)
            before = before.parent

    def _shrink(self, memory: PrefixMemory, limit: int, last: PrefixRun | None = None) -> None:
        """Evict the oldest blocks down to `limit`, those of prompts in flight and of the `last`
        prompt last.
        """
        running = memory.running
        spared = len(running) + 1
        while memory.blocks > limit:
            run = next(iter(memory.runs))
            if spared and (run.blocks[-1] in running or run is last):
                spared = 0 if run is last else spared - 1  # all older ones were examined
                self._used(run, memory, self.prompts)
                continue
            excess = memory.blocks - limit
            partly = run.partly
            length = len(run.blocks) if partly is None else partly.get(memory.slot, len(run.blocks))
            if length <= excess:
                self._drop(run, memory)
                continue
            run.holders &= ~memory.bit
            if run.partly is None:
                run.partly = {}
            run.partly[memory.slot] = length - excess
            memory.blocks = limit
            if not run.holders:
                self._settle(run)

    def _drop(self, run: PrefixRun, memory: PrefixMemory) -> None:
        del memory.runs[run]
        if run.holders & memory.bit:
            run.holders &= ~memory.bit
            memory.blocks -= len(run.blocks)
        else:
            memory.blocks -= self._partial(run, memory)
        if run.holders:
            return
        if run.partly is not None:
            self._settle(run)
            return
        del self._runs[run.blocks[0]]
        if run.parent is not None:
            run.parent.children -= 1

    @staticmethod
    def _settle(run: PrefixRun) -> None:
        """Drop blocks without any holder."""
        assert run.partly
        longest = max(run.partly.values())
        del run.blocks[longest:]
        for slot, count in list(run.partly.items()):
            if count == longest:
                run.holders |= 1 << slot
                del run.partly[slot]
        if not run.partly:
            run.partly = None
