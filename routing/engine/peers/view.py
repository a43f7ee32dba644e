"""Peers' batches applied to this router: their load, placements and circuits. Pure.

Loads are added to the workers' own counters, so that a pick needs no further term. A silent peer's
contributions are removed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from routing.engine.fleet.load import hold_prompt, release_prompt, update_load
from routing.engine.fleet.workers import WorkerTable
from routing.engine.kv.progress import ExpectedPrompt
from routing.engine.peers import messages
from routing.engine.peers.messages import Batch, Placement, WorkerLoad
from routing.engine.policies.base import RequestFacts, RoutingPolicy
from routing.engine.policies.canary import find_kvaware

if TYPE_CHECKING:
    from routing.engine.fleet.workers import Worker

SILENCE_S = 1.0
MAX_PEERS = 64
MAX_EXPECTED = 50_000  # KV placements of a peer without an end


class BudgetBook(Protocol):
    """Token budgets that peers use up, too (access.key_usage)."""

    def apply_peer(
        self, instance: str, key_id: str, used: int, reserved: int, left: int, newer: bool
    ) -> None: ...
    def lost(self, instance: str) -> None: ...


class PeerState(Protocol):
    """The part of a router that peers change."""

    @property
    def table(self) -> WorkerTable: ...
    @property
    def policy(self) -> RoutingPolicy: ...
    def picked(self, worker: Worker) -> None:
        """Make the worker the most recently picked one."""

    def learn_pace(self, worker_id: str, work: int, ttft_s: float) -> None: ...


class Peer:
    """What one peer contributes."""

    __slots__ = (
        "age_s",
        "callers",
        "expected",
        "first_at",
        "id",
        "loads",
        "prompts",
        "received_at",
        "sequence",
    )

    def __init__(self, router_id: str, now: float) -> None:
        self.id = router_id
        self.sequence = -1
        self.first_at = self.received_at = now
        self.age_s = 0
        self.loads: dict[str, tuple[Worker, int, int, int]] = {}
        self.prompts: dict[tuple[str, int], Worker] = {}  # in flight, by worker and hash
        self.expected: dict[int, ExpectedPrompt] = {}
        self.callers: dict[str, tuple[int, int]] = {}  # key: in flight, waiting


class PeerView:
    def __init__(self, state: PeerState, router_id: str, budgets: BudgetBook) -> None:
        self._state = state
        self._id = router_id
        self._budgets = budgets
        self.dialect = 0
        self.peers: dict[str, Peer] = {}
        self.applying = False
        self.ignored = 0  # placements with other hashes or of unknown workers
        self._ejected: set[str] = set()  # by peers

    def apply(self, batch: Batch, now: float, age_s: float = 0.0) -> None:
        """Apply a batch. Raise MessageError if it is repeated, or of one peer too many.

        `age_s`: time since this router's start.
        """
        if batch.router == self._id:
            return
        peer = self.peers.get(batch.router)
        if peer is None:
            if batch.leaving:
                return
            if len(self.peers) >= MAX_PEERS:
                raise messages.MessageError("too_many")
            peer = self.peers[batch.router] = Peer(batch.router, now)
        if batch.sequence <= peer.sequence:
            raise messages.MessageError("repeated")
        peer.sequence = batch.sequence
        peer.received_at = now
        peer.age_s = max(peer.age_s, batch.age_s)
        if batch.leaving:
            self._drop(peer)
            return
        self._apply_loads(peer, batch)
        self._apply_prompts(peer, batch)
        self.remember(batch, peer)
        self._end_expected(peer, batch, now)
        self.applying = True
        for change in batch.circuits:
            self._apply_circuit(change.worker, change.opened)
        self.applying = False
        for time in batch.times:
            if time.worker in self._state.table.workers:
                self._state.learn_pace(time.worker, time.work, time.ttft_s)
        if batch.complete:
            peer.callers.clear()
        for caller in batch.callers:
            if caller.in_flight or caller.waiting:
                peer.callers[caller.key] = (caller.in_flight, caller.waiting)
            else:
                peer.callers.pop(caller.key, None)
        newer = peer.age_s > age_s + 1
        for use in batch.budgets:
            self._budgets.apply_peer(peer.id, use.key, use.used, use.reserved, use.left, newer)

    def remember(self, batch: Batch, peer: Peer | None = None) -> None:
        """Apply placements. `peer` None: a peer's memory, without expected blocks."""
        if batch.dialect != self.dialect:
            self.ignored += len(batch.placed)
            return
        for placement in batch.placed:
            worker = self._state.table.workers.get(placement.worker)
            if worker is None:
                self.ignored += 1
            elif not placement.block_size:
                chain = messages.unpack_names(placement.names)
                request_facts = RequestFacts(chain, 0, placement.block_tokens, b"")
                if placement.share:
                    self._state.policy.set_share(worker.id, placement.share)
                self._state.policy.sent(request_facts, worker)
            elif peer is not None:
                self._expect(peer, placement)

    def _expect(self, peer: Peer, placement: Placement) -> None:
        policy = find_kvaware(self._state.policy)
        if policy is None or len(peer.expected) >= MAX_EXPECTED:
            self.ignored += 1
            return
        if placement.number not in peer.expected:
            names = messages.unpack_names(placement.names)
            guess = policy.pending.sent(placement.worker, {placement.block_size: names})
            peer.expected[placement.number] = guess

    def _end_expected(self, peer: Peer, batch: Batch, now: float) -> None:
        policy = find_kvaware(self._state.policy)
        for number in batch.answered:
            guess = peer.expected.pop(number, None)
            if guess is not None and policy is not None:
                policy.pending.answered(guess, now)
        for number in batch.failed:
            guess = peer.expected.pop(number, None)
            if guess is not None and policy is not None:
                policy.pending.failed(guess)

    def _apply_loads(self, peer: Peer, batch: Batch) -> None:
        if batch.complete:
            stated = {load.worker for load in batch.loads}
            for name in [name for name in peer.loads if name not in stated]:
                self._set_load(peer, WorkerLoad(name, 0, 0, 0))
        for load in batch.loads:
            self._set_load(peer, load)

    def _apply_prompts(self, peer: Peer, batch: Batch) -> None:
        stated: set[tuple[str, int]] = set()
        for item in batch.prompts:
            worker = self._state.table.workers.get(item.worker)
            names = messages.unpack_names(item.names)
            for name, tokens in zip(names, item.tokens, strict=False):
                key = (item.worker, name)
                if tokens and worker is not None:
                    stated.add(key)
                    if peer.prompts.get(key) is not worker:
                        self._release(peer, key)
                        hold_prompt(worker, name, tokens)
                        peer.prompts[key] = worker
                else:
                    self._release(peer, key)
        if batch.complete:
            for key in peer.prompts.keys() - stated:
                self._release(peer, key)

    @staticmethod
    def _release(peer: Peer, key: tuple[str, int]) -> None:
        worker = peer.prompts.pop(key, None)
        if worker is not None:
            release_prompt(worker, key[1])

    def _set_load(self, peer: Peer, load: WorkerLoad) -> None:
        before = peer.loads.pop(load.worker, None)
        worker = self._state.table.workers.get(load.worker)
        if before is not None and before[0] is not worker:
            before = None  # the worker was replaced: its counters are gone
        if worker is None:
            return
        _, in_flight, backlog, decoding = before or (worker, 0, 0, 0)
        if load.in_flight or load.backlog or load.decoding:
            peer.loads[load.worker] = (worker, load.in_flight, load.backlog, load.decoding)
        in_flight = load.in_flight - in_flight
        backlog = load.backlog - backlog
        decoding = load.decoding - decoding
        if in_flight or backlog or decoding:
            if in_flight > 0:
                self._state.picked(worker)
            worker.in_flight += in_flight
            worker.backlog += backlog
            worker.decoding += decoding
            peers = worker.of_peers
            worker.of_peers = (peers[0] + in_flight, peers[1] + backlog, peers[2] + decoding)
            update_load(worker)

    def _apply_circuit(self, name: str, opened: bool) -> None:
        table = self._state.table
        worker = table.workers.get(name)
        if worker is None:
            return
        if not opened:
            if name in self._ejected:
                self._ejected.discard(name)
                table.answered(worker)
        # A peer that lost its own network must not eject the fleet.
        elif not worker.circuit.state and 2 * (len(self._ejected) + 1) <= len(table.workers):
            self._ejected.add(name)
            table.ejected_by_peer(worker)

    def tick(self, now: float) -> bool:
        """Drop silent peers; return True if one was dropped."""
        silent = [peer for peer in self.peers.values() if now - peer.received_at > SILENCE_S]
        for peer in silent:
            self._drop(peer)
        self._ejected = {
            name
            for name in self._ejected
            if (worker := self._state.table.workers.get(name)) is not None and worker.circuit.state
        }
        return bool(silent)

    def clear(self) -> None:
        for peer in list(self.peers.values()):
            self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        for name in list(peer.loads):
            self._set_load(peer, WorkerLoad(name, 0, 0, 0))
        for key in list(peer.prompts):
            self._release(peer, key)
        policy = find_kvaware(self._state.policy)
        if policy is not None:
            for guess in peer.expected.values():
                policy.pending.failed(guess)
        self._budgets.lost(peer.id)
        del self.peers[peer.id]

    def claim(self, key: str, most: int) -> int:
        """Return the part of an in-flight limit of a key ("": of all) to leave to the peers: what
        they use, and up to an equal share for what they queue.
        """
        share = most // (len(self.peers) + 1)
        claimed = 0
        for peer in self.peers.values():
            caller = peer.callers.get(key)
            if caller is not None:
                in_flight, waiting = caller
                claimed += max(in_flight, min(in_flight + waiting, share))
        return claimed
