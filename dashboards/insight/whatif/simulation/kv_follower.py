"""kvaware's block index on the simulation clock, fed by the workers' events.

The router's own code reads the events that vLLM would send, at the end of the step that caused
them. No other state of a worker is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import cast

from cachetier.simulation.block_cache import NOTHING
from dashboards.insight.whatif.simulation.worker import Change, FleetWorker
from routing.engine.kv import chain
from routing.engine.kv.events import EventApplier
from routing.engine.kv.match import Blocks, usable_blocks
from routing.engine.kv.wire import BlockHash, Event, Removed, Stored
from routing.engine.policies.kvaware import KvAware

_DEVICE = "GPU"
_MEDIA = ((_DEVICE, "news"), ("CPU", "l1_news"), ("STORAGE", "l2_news"))


class KvFollower:
    """Connects a fleet to the policies of its routers."""

    def __init__(self, policies: Sequence[KvAware], workers: Sequence[FleetWorker]) -> None:
        self._workers = workers
        self._size = workers[0].hardware.block_tokens
        self._indexes = [followed.index for followed in policies]
        self._appliers = [EventApplier(index) for index in self._indexes]
        self._root = self._indexes[0].root("")
        self._names: dict[tuple[int, int], int] = {}  # (previous chain, block) -> chain
        for worker in workers:
            worker.follow()

    def apply(self) -> list[str]:
        """Process new events; return the workers concerned."""
        concerned = []
        for number, worker in enumerate(self._workers):
            events: list[Event] = []
            for medium, journal in _MEDIA:
                news: list[Change] = getattr(worker, journal)
                if news:
                    events += self._events(news, medium)
                    news.clear()
            if not events:
                continue
            concerned.append(f"w{number}")
            for index, applier in zip(self._indexes, self._appliers, strict=True):
                for _ in applier.apply(index.rank(f"w{number}"), events):
                    pass
        return concerned

    def _events(self, changes: Sequence[Change], medium: str) -> Iterator[Event]:
        """Yield one event for all removals, then one for each run of consecutive blocks.

        Of several changes of one block only the last counts.
        """
        latest: dict[int, int | None] = {}
        for block, before in changes:
            latest.pop(block, None)
            latest[block] = before
        removed: list[BlockHash] = [block + 1 for block, before in latest.items() if before is None]
        if removed:
            yield Removed(removed, medium, 0)
        run: list[int] = []
        parent = NOTHING
        for block, before in latest.items():
            if before is None:
                continue
            if run and before == run[-1]:
                run.append(block)
                continue
            if run:
                yield self._stored(run, parent, medium)
            run, parent = [block], before
        if run:
            yield self._stored(run, parent, medium)

    def _stored(self, run: list[int], parent: int, medium: str) -> Stored:
        if medium != _DEVICE:  # without tokens: the device's event has them
            return Stored([block + 1 for block in run], medium=medium, group_idx=0)
        return Stored(
            block_hashes=[block + 1 for block in run],
            parent_block_hash=None if parent == NOTHING else parent + 1,
            token_ids=self._ids(run),
            block_size=self._size,
            medium=medium,
            group_idx=0,
            kv_cache_spec_kind="full_attention",
            extra_keys=[None] * len(run),
        )

    def _ids(self, run: Sequence[int]) -> list[int]:
        """Return token ids unique to each block; packed, as the index packs them itself."""
        ids = array("I")
        for block in run:
            ids.extend(array("I", (block & 0xFFFFFFFF,)) * self._size)
        return cast(list[int], ids)

    def blocks(self, prompt: Sequence[int], tokens: int) -> Blocks:
        """Return a prompt's blocks by their names in the index."""
        size = self._size
        names: list[int] = []
        parent = self._root
        for block in prompt[: usable_blocks(tokens, size)]:
            name = self._names.get((parent, block))
            if name is None:
                data = chain.pack_tokens(self._ids((block,)))
                name = chain.extend_chain(parent, data, size)[0]
                self._names[parent, block] = name
            names.append(name)
            parent = name
        return Blocks({size: names})
