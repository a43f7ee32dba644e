"""Prompts that the other routers of the endpoint sent: history, and doubled placements.

A peer publishes a prompt when it sends it and again when it is answered. Two routers that send one
prefix to two workers before they hear of each other compute it twice; the router with the smaller
ID counts that as `placed_router`, so that each doubled token is counted once. A router that had
heard of it counts its own placement instead, and states so (`Placement.known`).
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from routing.engine.peers import messages
from routing.engine.policies.prefix_index import common_length

if TYPE_CHECKING:
    from routing.engine.misses.history import PromptHistory
    from routing.engine.peers.messages import Batch
    from routing.engine.request import RoutedRequest

DOUBLED_S = 0.25  # between a placement and the news of a peer's: longer than their exchange takes
_PLACED_KEPT: Final = 1024
_SENT_KEPT = 16_384  # about 150 bytes each
_DOUBLED_KEPT = 1024


class PeerPrompts:
    def __init__(self, history: PromptHistory) -> None:
        self.active = False  # a peer sent a batch
        self._history = history
        self._placed: deque[tuple[float, RoutedRequest]] = deque(maxlen=_PLACED_KEPT)
        self._sent: dict[tuple[str, int], None] = {}  # worker, last block: not answered yet
        self._doubled: dict[RoutedRequest, int] = {}

    def placed(self, exchange: RoutedRequest, now: float) -> None:
        """Note a prompt of this router."""
        placed = self._placed
        while placed and now - placed[0][0] > DOUBLED_S:
            placed.popleft()
        placed.append((now, exchange))

    def note_batch(
        self, batch: Batch, dialect: int, smaller: bool = False, memory: bool = False
    ) -> None:
        """Note the prompts of a batch. `dialect`: this router's. `memory`: answered prompts."""
        self.active = True
        now = time.time()
        for placement in batch.placed if batch.dialect == dialect else ():
            chain = messages.unpack_names(placement.names)
            if placement.block_size or not chain:
                continue
            if memory:
                self.answered(placement.worker, chain, now)
            else:
                self.sent(placement.worker, chain, smaller, now, placement.known)

    def sent(
        self, worker: str, chain: array[int], smaller: bool, now: float, known: int = 0
    ) -> None:
        """Note a prompt of a peer. `smaller`: this router's ID is smaller than the peer's. `known`:
        blocks that the peer knew on another worker.
        """
        name = (worker, chain[-1])
        if name in self._sent:
            del self._sent[name]
            self.answered(worker, chain, now)
            return
        if len(self._sent) >= _SENT_KEPT:
            del self._sent[next(iter(self._sent))]
        self._sent[name] = None
        if smaller:
            for exchange in self._elsewhere(worker, chain[0], now):
                blocks = common_length(chain, exchange.facts.chain, 0)
                if blocks <= known:
                    continue
                if len(self._doubled) >= _DOUBLED_KEPT:
                    self._doubled.clear()  # of requests that failed
                self._doubled[exchange] = max(blocks, self._doubled.get(exchange, 0))

    def answered(self, worker: str, chain: array[int], now: float) -> None:
        self._history.used(worker, chain, now, hit=True)

    def _elsewhere(self, worker: str, first: int, now: float) -> Iterator[RoutedRequest]:
        """Yield requests of this moment that began like this and went to another worker."""
        for placed_at, exchange in self._placed:
            chain, decision = exchange.facts.chain, exchange.decision
            if now - placed_at > DOUBLED_S or not chain or chain[0] != first:
                continue
            if decision.chosen not in ("", worker) and decision.duration_s is None:
                yield exchange

    def take_doubled(self, exchange: RoutedRequest) -> int:
        """Return the blocks of a request that a peer sent elsewhere at the same moment."""
        return self._doubled.pop(exchange, 0) if self._doubled else 0
