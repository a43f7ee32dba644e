"""kvaware's block index on the simulation clock, fed by the workers' events.

The router's own code reads the events that vLLM would send, at the end of the step that caused
them. No other state of a worker is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from bench.fleet.cache import NOTHING, Change
from bench.fleet.hardware import BLOCK_TOKENS
from bench.fleet.worker import FleetWorker
from routing.engine.kv import chain
from routing.engine.kv.events import EventApplier
from routing.engine.kv.match import Blocks, usable_blocks
from routing.engine.kv.wire import Event, Removed, Stored
from routing.engine.policies.kvaware import KvAware


def _ids(block: int) -> list[int]:
    """Return token ids unique to the block."""
    return [block & 0xFFFFFFFF] * BLOCK_TOKENS


def _event(change: Change) -> Event:
    block, before = change
    if before is None:
        return Removed([block + 1], "GPU", 0)
    return Stored(
        block_hashes=[block + 1],
        parent_block_hash=None if before == NOTHING else before + 1,
        token_ids=_ids(block),
        block_size=BLOCK_TOKENS,
        medium="GPU",
        group_idx=0,
        kv_cache_spec_kind="full_attention",
        extra_keys=[None],
    )


class KvFollower:
    """Connects a fleet to the policies of its routers."""

    def __init__(self, policies: Sequence[KvAware], workers: Sequence[FleetWorker]) -> None:
        self._workers = workers
        self._indexes = [followed.index for followed in policies]
        self._appliers = [EventApplier(index) for index in self._indexes]
        self._root = self._indexes[0].root("")
        self._names: dict[tuple[int, int], int] = {}  # (previous chain, block) -> chain
        for worker in workers:
            worker.follow()

    def hear(self) -> list[str]:
        """Process new events; return the workers concerned."""
        heard = []
        for number, worker in enumerate(self._workers):
            if not worker.news:
                continue
            heard.append(f"w{number}")
            events = [_event(change) for change in worker.news]
            worker.news.clear()
            for index, applier in zip(self._indexes, self._appliers, strict=True):
                for _ in applier.apply(index.rank(f"w{number}"), events):
                    pass
        return heard

    def blocks(self, prompt: Sequence[int], tokens: int) -> Blocks:
        """Return a prompt's blocks by their names in the index."""
        names: list[int] = []
        parent = self._root
        for block in prompt[: usable_blocks(tokens, BLOCK_TOKENS)]:
            name = self._names.get((parent, block))
            if name is None:
                data = array("I", _ids(block)).tobytes()
                name = self._names[parent, block] = chain.extend_chain(parent, data, BLOCK_TOKENS)[
                    0
                ]
            names.append(name)
            parent = name
        return Blocks({BLOCK_TOKENS: names})
