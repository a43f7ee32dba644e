"""L1 or L2 of simulated workers: blocks in the order of the tier's eviction policy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Generic

from cachetier.engine.policies import make_policy
from cachetier.simulation.block_cache import Block, Journal

_KEY_BYTES = 8


class TierCache(Generic[Block]):
    """Blocks of one tier. Stored and evicted blocks go to the journal of the worker that stored
    them. `size`: in blocks; `policy`: one of cachetier.engine.policies.
    """

    def __init__(self, size: int, policy: str = "lru") -> None:
        self.size = size
        self.evicted = 0
        # LRU, by far the most used, without the policy's keys of bytes.
        self._policy = None if policy == "lru" else make_policy(policy, size)
        self._owners: OrderedDict[Block, Journal[Block] | None] = OrderedDict()
        self._blocks: dict[bytes, Block] = {}  # by key of the policy

    def __contains__(self, block: Block) -> bool:
        return block in self._owners

    def __len__(self) -> int:
        return len(self._owners)

    def touch(self, chain: Sequence[Block]) -> None:
        """Record a use of all blocks of a prompt, its end first."""
        owners, policy = self._owners, self._policy
        for block in reversed(chain):
            if block in owners:
                if policy is None:
                    owners.move_to_end(block)
                else:
                    policy.used(_key(block))

    def store(self, block: Block, before: Block, journal: Journal[Block] | None) -> None:
        if block in self._owners or not self.size:
            return
        while len(self._owners) >= self.size:
            self._evict()
        self._owners[block] = journal
        if self._policy is not None:
            self._blocks[_key(block)] = block
            self._policy.added(_key(block), 1)
        if journal is not None:
            journal.append((block, before))

    def _evict(self) -> None:
        if self._policy is None:
            block, journal = self._owners.popitem(last=False)
        else:
            key = self._policy.victim()
            assert key is not None  # a full tier holds a block
            self._policy.evicted(key)
            block = self._blocks.pop(key)
            journal = self._owners.pop(block)
        self.evicted += 1
        if journal is not None:
            journal.append((block, None))


def _key(block: int | bytes) -> bytes:
    return block if isinstance(block, bytes) else block.to_bytes(_KEY_BYTES, "big")
