"""Pool membership: nodes in use, one client each, and key placement.

A static list never changes. A file, DNS name or cluster is refreshed by a background thread, so
that neither operations nor startup wait for disk or DNS; until the first refresh the pool is empty.
A failed or empty refresh keeps the current nodes. Nodes that remain keep their connections and
breaker.

Keys are placed on nodes whose breaker is closed, so that a dead node's keys move to their next node
and return with it. For a while after each change the previous owner of a moved key is known
(`placement`); nodes that left the list keep their connections for as long.

Connections, and thus the password, go only to configured nodes and to those listed by CLUSTER SLOTS
of a configured cluster. MOVED and ASK select among these nodes; other redirect targets are never
connected to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from cachetier.client.address import Address, AddressError
from cachetier.client.cache_client import CacheClient
from cachetier.client.cluster import Redirect, SlotMap, parse_slots
from cachetier.client.connection import CacheError, ReplyError
from cachetier.client.node_list import MAX_NODES, Nodes, read_list, resolve_addresses
from cachetier.client.outcomes import Counters
from cachetier.client.placement import Placement
from cachetier.client.rendezvous import Rendezvous

Clients = dict[str, CacheClient]

_REFRESH_INTERVALS_S = {"file": 1.0, "dns": 5.0, "cluster": 30.0}
# After a failure the membership is refreshed early, but not more often than this.
_MIN_REFRESH_INTERVAL_S = 1.0
_QUERY_TIMEOUT_S = 2.0
# Metric cardinality limit: pods change addresses for months, so nodes beyond this count are counted
# together.
_MAX_LABELLED_NODES = 64
OTHER_NODES_LABEL = "others"


class Membership:
    def __init__(
        self, nodes: Nodes, password: str, on_change: Callable[[str], None] | None
    ) -> None:
        self._nodes = nodes
        self._password = password
        self._on_change = on_change or (lambda _text: None)
        # guards writes of the fields below; they are read without it
        self._lock = threading.Lock()
        # Listed nodes; nodes that left but are still queried; and the placement without the nodes
        # named last, which are down. Each is replaced, never mutated.
        self._listed: Clients = {}
        self._retired: Clients = {}
        self._placed: tuple[Placement, frozenset[str]] = (Placement(Rendezvous(())), frozenset())
        self._gone: dict[str, Counters] = {}
        self._named: set[str] = set()
        self._slots = SlotMap()
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._trouble = ""
        self._unlisted = ""  # last redirect target missing from the node list
        if nodes.kind == "list":
            self._replace(nodes.addresses)
        else:
            threading.Thread(target=self._watch, name="emberline-members", daemon=True).start()

    def clients(self) -> Clients:
        """Return the clients of listed nodes by name; the dictionary is never mutated."""
        return self._listed

    def client(self, name: str) -> CacheClient | None:
        """Return the client of a node that is listed or left recently."""
        return self._listed.get(name) or self._retired.get(name)

    def owners(self, placement: Placement, keys: Sequence[bytes], rank: int) -> list[str]:
        """Return the node of each key's copy `rank` (0 or 1); "" where there is none."""
        if self._nodes.kind == "cluster":
            # For a slot without a known owner any node redirects.
            clients = self._listed
            slot_owners, anyone = map(self._slots.owner, keys), next(iter(clients), "")
            return [owner if owner in clients else anyone for owner in slot_owners]
        return [placement.owner(key, rank) for key in keys]

    def previous_owners(self, placement: Placement, keys: Sequence[bytes]) -> list[str]:
        """Return for each key a responding node that owned it before recent changes, or ""."""
        if not placement.previous:
            return [""] * len(keys)
        clients = {**self._retired, **self._listed}
        usable = {name for name, client in clients.items() if not client.breaker.is_open}
        copies = self._nodes.replicas
        return [placement.previous_owner(key, copies, usable) for key in keys]

    def placement(self) -> Placement:
        """Return the placement on responding nodes; on all if none responds.

        An operation uses one: a node that fails during it must not change the copies' order.
        """
        placement, down = self._placed
        if placement.is_outdated(time.monotonic()) or down != self._find_down():
            with self._lock:
                self._place_again()
            placement = self._placed[0]
        return placement

    def _find_down(self) -> frozenset[str]:
        return frozenset(name for name, client in self._listed.items() if client.breaker.is_open)

    def _place_again(self) -> None:
        """Replace the placement after a change. Requires the lock."""
        now, down = time.monotonic(), self._find_down()
        used = {
            name: member.address.weight for name, member in self._listed.items() if name not in down
        }
        ring = Rendezvous(used or {n: member.address.weight for n, member in self._listed.items()})
        before = self._placed[0]
        is_cluster = self._nodes.kind == "cluster"  # which moves values itself
        placement = Placement(ring) if is_cluster else before.replaced(ring, now).current(now)
        needed = {name for _, previous in placement.previous for name in previous.names}
        for name in self._retired.keys() - needed:
            self._forget(name, self._retired[name])
        self._retired = {name: client for name, client in self._retired.items() if name in needed}
        self._placed = placement, down

    def _forget(self, name: str, client: CacheClient) -> None:
        """Close the client of a node that left and keep its counters. Requires the lock."""
        client.close()
        self._gone.setdefault(self.label(name), Counters()).absorb(client.counters)

    def counters(self) -> dict[str, Counters]:
        with self._lock:
            by_label: dict[str, Counters] = {}
            members = (*self._listed.items(), *self._retired.items())
            present = [(self.label(name), client.counters) for name, client in members]
            for label, counters in (*self._gone.items(), *present):
                by_label.setdefault(label, Counters()).absorb(counters)
        return by_label

    def label(self, name: str) -> str:
        return name if name in self._named else OTHER_NODES_LABEL

    def poke(self) -> None:
        """Request an early refresh after a failure."""
        if self._nodes.kind == "cluster":
            self._wake.set()

    def redirected(self, redirect: Redirect, sender: str) -> str:
        """Return the name of the known node that `redirect` selects, "" if it is not followed."""
        if self._nodes.kind != "cluster":
            self._in_trouble(
                f"{sender} is a Redis Cluster node, but {self._nodes} is not "
                "configured as a cluster: its keys count as misses; add "
                "nodes=cluster to the URL"
            )
            return ""
        with self._lock:
            clients = self.clients()
            source = clients.get(sender)
            if source is None:
                return ""
            name = redirect.address(source.address).label
            if name not in clients:
                self._unlisted = name
            elif redirect.moved:
                self._slots.moved(redirect.slot, name)
        if redirect.moved or name not in clients:
            self._wake.set()
        return name if name in clients else ""

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        with self._lock:
            for client in (*self._listed.values(), *self._retired.values()):
                client.close()

    def _client(self, address: Address) -> CacheClient:
        if len(self._named) < _MAX_LABELLED_NODES:
            self._named.add(address.label)
        return CacheClient(address, self._password, on_change=self._on_change)

    def _replace(self, addresses: tuple[Address, ...]) -> None:
        by_label = {address.label: address for address in addresses}
        with self._lock:
            if self._closing.is_set():
                return
            before, clients = self._listed, {**self._retired, **self._listed}
            unchanged = {
                name: client
                for name, client in clients.items()
                if by_label.get(name) == client.address
            }
            self._listed = {
                name: unchanged.get(name) or self._client(address)
                for name, address in by_label.items()
            }
            left = {name: client for name, client in clients.items() if name not in unchanged}
            self._retired = {name: client for name, client in left.items() if name not in by_label}
            for name in left.keys() & by_label.keys():  # another address under the same name
                self._forget(name, left[name])
            for name, client in clients.items():
                client.is_retired = name not in by_label
            self._place_again()
        if set(before) != set(by_label):
            self._on_change(
                f"{self._nodes}: {len(by_label)} nodes now: {', '.join(sorted(by_label))}"
            )

    def _watch(self) -> None:
        while not self._closing.is_set():
            self._refresh_members()
            # One refresh serves a burst of failures.
            if self._closing.wait(_MIN_REFRESH_INTERVAL_S):
                return
            self._wake.wait(_REFRESH_INTERVALS_S[self._nodes.kind] if self.clients() else 0.0)
            self._wake.clear()

    def _refresh_members(self) -> None:
        try:
            members = self._find()
        except (OSError, CacheError, ReplyError, AddressError, ValueError) as exc:
            self._in_trouble(f"{self._nodes} cannot be looked up: {exc}")
            return
        if not members:
            self._in_trouble(f"{self._nodes} lists no node")
            return
        self._replace(members)
        unlisted, self._unlisted = self._unlisted, ""
        if unlisted and unlisted not in self.clients():
            self._in_trouble(
                f"{self._nodes}: a node redirects to {unlisted}, which CLUSTER SLOTS does not "
                "list; not followed, its keys count as misses"
            )
        else:
            self._in_trouble("")

    def _find(self) -> tuple[Address, ...]:
        if self._nodes.kind == "file":
            return read_list(self._nodes.path)
        if self._nodes.kind == "dns":
            return resolve_addresses(self._nodes.addresses[0])
        return self._find_cluster()

    def _find_cluster(self) -> tuple[Address, ...]:
        """Query current nodes, then seeds, until one returns the cluster's nodes."""
        trouble: Exception = AddressError("no node responded")
        for address in self._cluster_sources():
            asking = CacheClient(address, self._password)
            try:
                reply: Any = asking.ask(b"CLUSTER", b"SLOTS", timeout_s=_QUERY_TIMEOUT_S)
            except (CacheError, ReplyError) as exc:
                trouble = exc
                continue
            finally:
                asking.close()
            ranges = parse_slots(reply, address)
            if ranges:
                self._slots.learn(ranges)
                return tuple({node.label: node for _, _, node in ranges}.values())[:MAX_NODES]
        raise trouble

    def _cluster_sources(self) -> list[Address]:
        healthy = [client for client in self.clients().values() if not client.breaker.is_open]
        return list(dict.fromkeys((*(node.address for node in healthy), *self._nodes.addresses)))

    def _in_trouble(self, text: str) -> None:
        if text and text != self._trouble:
            self._on_change(text)
        self._trouble = text
