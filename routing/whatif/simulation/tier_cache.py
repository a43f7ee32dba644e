"""L1 and L2 of simulated workers: blocks in the order of the tier's eviction policy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from cachetier.engine.policies import make_policy
from routing.whatif.simulation.block_cache import Change
from routing.whatif.simulation.hardware import TierModel

_KEY_BYTES = 8
TierJournal = list[Change]


class TierCache:
    """Blocks of one tier. Stored and evicted blocks go to the journal of the worker that stored
    them.
    """

    def __init__(self, model: TierModel, block_tokens: int) -> None:
        self.model = model
        self.size = model.tokens // block_tokens
        self.evicted = 0
        # LRU, by far the most used, without the policy's keys of bytes.
        self._policy = None if model.policy == "lru" else make_policy(model.policy, self.size)
        self._owners: OrderedDict[int, TierJournal | None] = OrderedDict()

    def __contains__(self, block: int) -> bool:
        return block in self._owners

    def __len__(self) -> int:
        return len(self._owners)

    def touch(self, chain: Sequence[int]) -> None:
        """Record a use of all blocks of a prompt, its end first."""
        owners, policy = self._owners, self._policy
        for block in reversed(chain):
            if block in owners:
                if policy is None:
                    owners.move_to_end(block)
                else:
                    policy.used(block.to_bytes(_KEY_BYTES, "big"))

    def store(self, block: int, before: int, journal: TierJournal | None) -> None:
        if block in self._owners or not self.size:
            return
        while len(self._owners) >= self.size:
            self._evict()
        self._owners[block] = journal
        if self._policy is not None:
            self._policy.added(block.to_bytes(_KEY_BYTES, "big"), 1)
        if journal is not None:
            journal.append((block, before))

    def _evict(self) -> None:
        if self._policy is None:
            block, journal = self._owners.popitem(last=False)
        else:
            key = self._policy.victim()
            assert key is not None  # a full tier holds a block
            self._policy.evicted(key)
            block = int.from_bytes(key, "big")
            journal = self._owners.pop(block)
        self.evicted += 1
        if journal is not None:
            journal.append((block, None))
