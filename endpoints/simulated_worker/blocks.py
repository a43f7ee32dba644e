"""Prefix cache of one worker: block hashes on the device and in L1, without contents.

Follows vLLM's scheduler: chained hashes over full blocks, the longest prefix is a hit, the last
prompt token is always computed, blocks of running requests are never evicted, and the deepest block
of a finished request is evicted first.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Hash = bytes
BlockListener = Callable[[Hash, bool], None]  # called with True on insert, False on removal


def _ignore_block(_block: Hash, _held: bool) -> None: ...


def chain_hashes(tokens: Sequence[int], block_size: int, salt: str = "") -> list[Hash]:
    """Return one hash per full block, each over all tokens up to its end."""
    found: list[Hash] = []
    parent = hashlib.sha256(salt.encode()).digest()
    for start in range(0, len(tokens) - block_size + 1, block_size):
        part = array("q", tokens[start : start + block_size]).tobytes()
        parent = hashlib.sha256(parent + part).digest()[:16]
        found.append(parent)
    return found


@dataclass(slots=True)
class Holding:
    """Blocks held by a running request: hashed ones and a count of unhashed ones."""

    named: list[Hash] = field(default_factory=list)
    nameless: int = 0


class Device:
    """Device blocks: free, hashed and idle (LRU), or held. `listener` is called on every insert and
    removal.
    """

    def __init__(self, total: int, listener: BlockListener = _ignore_block) -> None:
        self.total = total
        self._listener = listener
        self._held: dict[Hash, int] = {}
        self._idle: OrderedDict[Hash, None] = OrderedDict()
        self._nameless = 0

    @property
    def usage(self) -> float:
        """Return the share held by running requests, as in vllm:kv_cache_usage_perc."""
        return (len(self._held) + self._nameless) / self.total

    def match(self, hashes: Sequence[Hash]) -> int:
        for count, block in enumerate(hashes):
            if block not in self._held and block not in self._idle:
                return count
        return len(hashes)

    def take(self, hits: Sequence[Hash], fresh: int) -> Holding | None:
        """Hold the hits and `fresh` unhashed blocks, evicting idle ones; None if they do not fit
        now.
        """
        reused = sum(block in self._idle for block in hits)
        held = len(self._held) + self._nameless
        if held + reused + fresh > self.total:
            return None
        for block in hits:
            self._hold(block)
        while len(self._held) + self._nameless + len(self._idle) + fresh > self.total:
            lost, _ = self._idle.popitem(last=False)
            self._listener(lost, False)
        self._nameless += fresh
        return Holding(list(hits), fresh)

    def name(self, holding: Holding, block: Hash) -> None:
        """Assign a hash to a full block, unless a held duplicate has it already."""
        if block in self._held or holding.nameless == 0:
            return
        if block in self._idle:
            del self._idle[block]
        else:
            self._listener(block, True)
        self._held[block] = 1
        holding.named.append(block)
        holding.nameless -= 1
        self._nameless -= 1

    def release(self, holding: Holding) -> None:
        for block in reversed(holding.named):
            self._held[block] -= 1
            if not self._held[block]:
                del self._held[block]
                self._idle[block] = None
        self._nameless -= holding.nameless
        holding.named, holding.nameless = [], 0

    def reset(self) -> bool:
        """Drop every hash. Return False while a request holds one."""
        if self._held or self._nameless:
            return False
        self._idle.clear()
        return True

    def _hold(self, block: Hash) -> None:
        self._idle.pop(block, None)
        self._held[block] = self._held.get(block, 0) + 1


class L1Lru:
    def __init__(self, capacity: int, listener: BlockListener = _ignore_block) -> None:
        self._capacity = capacity
        self._listener = listener
        self._blocks: OrderedDict[Hash, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def __contains__(self, block: Hash) -> bool:
        return block in self._blocks

    def touch(self, block: Hash) -> None:
        self._blocks.move_to_end(block)

    def put(self, block: Hash) -> None:
        if self._capacity:
            if block not in self._blocks:
                while len(self._blocks) >= self._capacity:
                    lost, _ = self._blocks.popitem(last=False)
                    self._listener(lost, False)
                self._listener(block, True)
            self._blocks[block] = None
            self._blocks.move_to_end(block)


class L1Arc:
    """L1 with adaptive replacement (ARC, Megiddo and Modha 2003): recency and frequency lists,
    sized by hits on their ghost lists.
    """

    def __init__(self, capacity: int, listener: BlockListener = _ignore_block) -> None:
        self._capacity = capacity
        self._listener = listener
        self._target = 0.0  # target size of `_once`
        self._once: OrderedDict[Hash, None] = OrderedDict()
        self._often: OrderedDict[Hash, None] = OrderedDict()
        self._lost_once: OrderedDict[Hash, None] = OrderedDict()
        self._lost_often: OrderedDict[Hash, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._once) + len(self._often)

    def __contains__(self, block: Hash) -> bool:
        return block in self._once or block in self._often

    def touch(self, block: Hash) -> None:
        self._once.pop(block, None)
        self._often[block] = None
        self._often.move_to_end(block)

    def put(self, block: Hash) -> None:
        if not self._capacity:
            return
        if block in self:
            self.touch(block)
        elif block in self._lost_once:
            step = max(1.0, len(self._lost_often) / len(self._lost_once))
            self._target = min(float(self._capacity), self._target + step)
            self._make_room(block)
            del self._lost_once[block]
            self._often[block] = None
            self._listener(block, True)
        elif block in self._lost_often:
            step = max(1.0, len(self._lost_once) / len(self._lost_often))
            self._target = max(0.0, self._target - step)
            self._make_room(block)
            del self._lost_often[block]
            self._often[block] = None
            self._listener(block, True)
        else:
            self._admit(block)
            self._listener(block, True)

    def _admit(self, block: Hash) -> None:
        if len(self._once) + len(self._lost_once) >= self._capacity:
            if len(self._once) < self._capacity:
                self._lost_once.popitem(last=False)
                self._make_room(block)
            else:
                lost, _ = self._once.popitem(last=False)
                self._listener(lost, False)
        elif len(self) + len(self._lost_once) + len(self._lost_often) >= self._capacity:
            if len(self) + len(self._lost_once) + len(self._lost_often) >= 2 * self._capacity:
                self._lost_often.popitem(last=False)
            self._make_room(block)
        self._once[block] = None

    def _make_room(self, block: Hash) -> None:
        if len(self) < self._capacity:
            return
        over = len(self._once) > self._target
        at = len(self._once) == self._target and block in self._lost_often
        if self._once and (over or at or not self._often):
            lost, _ = self._once.popitem(last=False)
            self._lost_once[lost] = None
        else:
            lost, _ = self._often.popitem(last=False)
            self._lost_often[lost] = None
        self._listener(lost, False)


L1 = L1Lru | L1Arc


def make_l1(policy: str, capacity: int, listener: BlockListener = _ignore_block) -> L1:
    return L1Arc(capacity, listener) if policy == "arc" else L1Lru(capacity, listener)
