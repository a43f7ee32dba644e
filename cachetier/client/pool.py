"""Client of many cache nodes: keys are placed on nodes, and a failed node loses only its own
values.

Thread-safe, with the guarantees of `cachetier.client.cache_client`. A batch is split by node and
the parts run concurrently; each node has its own breaker. With two copies the first node gets
half of the time. Membership may change at any moment (`membership`).

While nodes join, leave, fail and return, a missing key is looked up once more at its previous
owner, and a value loaded there is copied to its owner in the background (`moves`).

Callers with their own threads keep batches to one `lane(key)`, so that an unresponsive node
delays only its own batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

from cachetier.client.cache_client import CacheClient
from cachetier.client.cluster import Redirect
from cachetier.client.membership import Membership
from cachetier.client.moves import ValueMoves
from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import HEALTHY_OUTCOMES, Counters, KeyOutcome, PreviousResult
from cachetier.client.placement import Placement
from cachetier.client.replies import Redirects

_THREADS = 16
# A slot may move twice during one operation; more indicates an inconsistent cluster.
_MAX_HOPS = 3

_PREVIOUS_RESULTS = {KeyOutcome.OK: PreviousResult.OK, KeyOutcome.MISSING: PreviousResult.MISSING}

Items = Sequence[tuple[bytes, memoryview]]
_Moved = dict[tuple[str, str], list[int]]
# (node, positions in the batch, seconds, redirects, asking) -> outcomes
_NodeOperation = Callable[[CacheClient, list[int], float, Redirects, bool], list[KeyOutcome]]


class CachePool:
    """Client of a node pool; `on_change(text)` reports nodes that fail, recover, join or leave."""

    def __init__(
        self, nodes: Nodes, password: str = "", on_change: Callable[[str], None] | None = None
    ) -> None:
        self.nodes = nodes
        self.counters = Counters()  # by outcome; per node in `by_node`
        self._members = Membership(nodes, password, on_change)
        self._moves = ValueMoves(self._members.client, self.counters)
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False
        if nodes.kind != "list" or len(nodes.addresses) > 1:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="emberline-nodes")

    def __str__(self) -> str:
        return str(self.nodes)

    def lane(self, key: bytes) -> str:
        """Return the name of the key's first node; "" if no node is known."""
        return self._members.owners(self._members.placement(), [key], 0)[0]

    def exists(self, keys: Sequence[bytes], timeout_s: float) -> list[KeyOutcome]:
        outcomes, _ = self._find(
            "lookup",
            keys,
            lambda node, at, *batch: node.exists([keys[i] for i in at], *batch),
            timeout_s,
        )
        self.counters.add("lookup", outcomes, 0)
        return outcomes

    def load(self, items: Items, timeout_s: float) -> list[KeyOutcome]:
        """Fill each view with its key's body; views with another outcome than OK are undefined."""
        outcomes, moved = self._find(
            "load",
            [key for key, _ in items],
            lambda node, at, *batch: node.load([items[i] for i in at], *batch),
            timeout_s,
        )
        for (source, owner), places in moved.items():
            self._moves.start(source, owner, [items[place] for place in places])
        self.counters.add("load", outcomes, _count_ok_bytes(items, outcomes))
        return outcomes

    def store(self, items: Items, ttl_s: int, timeout_s: float) -> list[KeyOutcome]:
        """Store each body unless its key exists; OK if at least one of its nodes stored it."""
        keys = [key for key, _ in items]
        deadline = time.monotonic() + timeout_s
        outcomes = [KeyOutcome.NO_NODE] * len(items)
        placement = self._members.placement()
        for rank in range(self.nodes.replicas):
            got = self._at_rank(
                placement,
                keys,
                list(range(len(keys))),
                rank,
                lambda node, at, *batch: node.store([items[i] for i in at], ttl_s, *batch),
                _seconds_left(deadline),
            )
            outcomes = [_choose_outcome(was, now) for was, now in zip(outcomes, got, strict=True)]
        self.counters.add("store", outcomes, _count_ok_bytes(items, outcomes))
        return outcomes

    def close(self) -> None:
        """Close all clients; batches in progress fail."""
        self._closed = True
        self._moves.close()
        self._members.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def by_node(self) -> dict[str, Counters]:
        """Return counters per node, also departed ones; nodes beyond the limit share a label."""
        return self._members.counters()

    def open_breakers(self) -> dict[str, bool]:
        """Return whether the breaker is open, per current node, with the labels of `by_node`."""
        breakers: dict[str, bool] = {}
        for name, node in self._members.clients().items():
            label = self._members.label(name)
            breakers[label] = breakers.get(label, False) or node.breaker.is_open
        return breakers

    @property
    def is_open(self) -> bool:
        return all(node.breaker.is_open for node in self._members.clients().values())

    def _find(
        self, operation: str, keys: Sequence[bytes], call: _NodeOperation, timeout_s: float
    ) -> tuple[list[KeyOutcome], _Moved]:
        """Query the first node, then for keys it lacks the second and the previous owner.

        Return also the positions found at a previous owner, by (that node, present owner).
        """
        deadline = time.monotonic() + timeout_s
        outcomes = [KeyOutcome.NO_NODE] * len(keys)
        waiting = list(range(len(keys)))
        placement, copies = self._members.placement(), self.nodes.replicas
        for rank in range(copies):
            share = _seconds_left(deadline) / (2 if rank + 1 < copies else 1)
            answers = self._at_rank(placement, keys, waiting, rank, call, share)
            for place, outcome in zip(waiting, answers, strict=True):
                outcomes[place] = _choose_outcome(outcomes[place], outcome)
            waiting = [place for place in waiting if outcomes[place] is not KeyOutcome.OK]
            if not waiting:
                return outcomes, {}
        missing = [place for place in waiting if outcomes[place] is KeyOutcome.MISSING]
        if not (missing and placement.previous):
            return outcomes, {}
        moved = self._query_previous_owners(
            placement, operation, keys, missing, call, deadline, outcomes
        )
        return outcomes, moved

    def _query_previous_owners(
        self,
        placement: Placement,
        operation: str,
        keys: Sequence[bytes],
        missing: list[int],
        call: _NodeOperation,
        deadline: float,
        outcomes: list[KeyOutcome],
    ) -> _Moved:
        """Query the previous owners of missing keys; failures leave them missing."""
        sources = self._members.previous_owners(placement, [keys[place] for place in missing])
        queried = {place: name for place, name in zip(missing, sources, strict=True) if name}
        if not queried:
            return {}
        # Half of what is left: the caller may have to compute the value by its own deadline.
        until = time.monotonic() + _seconds_left(deadline) / 2
        outcome_by_key = dict.fromkeys(queried, KeyOutcome.NO_NODE)
        self._side_by_side(_group(queried), call, until, outcome_by_key, {})
        owners = self._members.owners(placement, [keys[place] for place in queried], 0)
        moved: _Moved = {}
        counts = dict.fromkeys(PreviousResult, 0)
        for (place, outcome), owner in zip(outcome_by_key.items(), owners, strict=True):
            counts[_PREVIOUS_RESULTS.get(outcome, PreviousResult.FAILED)] += 1
            if outcome is KeyOutcome.OK:
                outcomes[place] = outcome
                moved.setdefault((queried[place], owner), []).append(place)
        for result, count in counts.items():
            self.counters.add_previous(operation, result, count)
        return moved

    def _at_rank(
        self,
        placement: Placement,
        keys: Sequence[bytes],
        places: list[int],
        rank: int,
        call: _NodeOperation,
        timeout_s: float,
    ) -> list[KeyOutcome]:
        """Return outcomes in the order of `places`, following cluster redirects."""
        deadline = time.monotonic() + timeout_s
        owners = self._members.owners(placement, [keys[place] for place in places], rank)
        parts = _group({place: name for place, name in zip(places, owners, strict=True) if name})
        outcomes = dict.fromkeys(places, KeyOutcome.NO_NODE)
        for _hop in range(_MAX_HOPS):
            moved: Redirects = {}
            self._side_by_side(parts, call, deadline, outcomes, moved)
            parts = self._follow(keys, parts, moved) if moved else {}
            if not parts:
                break
        return [outcomes[place] for place in places]

    def _side_by_side(
        self,
        parts: dict[tuple[str, bool], list[int]],
        call: _NodeOperation,
        deadline: float,
        outcomes: dict[int, KeyOutcome],
        moved: Redirects,
    ) -> None:
        """Run all parts concurrently: the last on this thread, the others on the pool's threads."""
        waiting: list[tuple[list[int], Future[list[KeyOutcome]]]] = []
        here: tuple[CacheClient, list[int], bool] | None = None
        for (name, asking), places in parts.items():
            node = self._members.client(name)
            if node is None:  # left since placement
                continue
            if here is not None:
                job = self._submit(call, here, deadline, moved)
                if job is not None:
                    waiting.append((here[1], job))
            here = (node, places, asking)
        if here is not None:
            node, places, asking = here
            got = call(node, places, _seconds_left(deadline), moved, asking)
            outcomes.update(zip(places, got, strict=True))
        for places, job in waiting:
            try:
                outcomes.update(zip(places, job.result(), strict=True))
            except CancelledError:
                outcomes.update(dict.fromkeys(places, KeyOutcome.ERROR))
        if any(outcome not in HEALTHY_OUTCOMES for outcome in outcomes.values()):
            self._members.poke()  # slots may have moved to another node

    def _submit(
        self,
        call: _NodeOperation,
        part: tuple[CacheClient, list[int], bool],
        deadline: float,
        moved: Redirects,
    ) -> Future[list[KeyOutcome]] | None:
        node, places, asking = part
        assert self._threads is not None  # a single node has a single part
        try:
            return self._threads.submit(
                lambda: call(node, places, _seconds_left(deadline), moved, asking)
            )
        except RuntimeError:  # pool closed
            return None

    def _follow(
        self, keys: Sequence[bytes], parts: dict[tuple[str, bool], list[int]], moved: Redirects
    ) -> dict[tuple[str, bool], list[int]]:
        """Return the next hop's parts; keys that are not followed keep the outcome `moved`."""
        following: dict[tuple[str, bool], list[int]] = {}
        for (name, _), places in parts.items():
            for place in places:
                redirect: Redirect | None = moved.get(keys[place])
                there = "" if redirect is None else self._members.redirected(redirect, name)
                if redirect is not None and there:
                    following.setdefault((there, not redirect.moved), []).append(place)
        return following


def _group(names: dict[int, str]) -> dict[tuple[str, bool], list[int]]:
    """Return the positions by node, each to be sent without ASKING."""
    parts: dict[tuple[str, bool], list[int]] = {}
    for place, name in names.items():
        parts.setdefault((name, False), []).append(place)
    return parts


def _seconds_left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.0)


def _choose_outcome(first: KeyOutcome, second: KeyOutcome) -> KeyOutcome:
    """Return OK if either copy is, else the first outcome unless that node was unreachable."""
    if second is KeyOutcome.OK or first is KeyOutcome.NO_NODE:
        return second
    return first


def _count_ok_bytes(items: Items, outcomes: Sequence[KeyOutcome]) -> int:
    return sum(
        view.nbytes
        for (_, view), outcome in zip(items, outcomes, strict=True)
        if outcome is KeyOutcome.OK
    )
