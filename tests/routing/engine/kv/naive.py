"""Naive index: sets of complete prefixes, and loops.

No hashes, no masks, no bits, no pieces. A prefix is (model's salt, tokens up to the block's end).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from routing.engine.kv.wire import Cleared, Event, Removed, Stored

Prefix = tuple[str, tuple[int, ...]]
PLACES = {"GPU": "gpu", "CPU": "l1"}


@dataclass
class Run:
    parent: Any
    hashes: list[Any]
    tokens: list[list[int]]
    place: str
    certain: bool
    gone: set[Any] = field(default_factory=set)


@dataclass
class Group:
    names: dict[Any, Prefix] = field(default_factory=dict)
    held: dict[Prefix, set[str]] = field(default_factory=dict)
    twins: dict[Any, Prefix] = field(default_factory=dict)
    parked: list[Run] = field(default_factory=list)

    def hold(self, prefix: Prefix, place: str) -> None:
        self.held.setdefault(prefix, set()).add(place)

    def place(self, run: Run, parent: Prefix) -> None:
        for block, tokens in zip(run.hashes, run.tokens, strict=True):
            prefix = (parent[0], (*parent[1], *tokens))
            known = self.names.get(block)
            if known is not None and not run.certain:
                prefix = known
            if block not in run.gone:
                if known is not None and known != prefix:
                    places = self.held.pop(known, set())
                    if places:
                        self.held.setdefault(prefix, set()).update(places)
                elif known is not None and run.place == "gpu" and "gpu" in self.held[known]:
                    self.twins[block] = prefix
                self.names[block] = prefix
                self.hold(prefix, run.place)
            parent = prefix
            for child in [child for child in self.parked if child.parent == block]:
                self.parked.remove(child)
                self.place(child, prefix)

    def remove(self, block: Any, places: set[str]) -> None:
        place = next(iter(places - {"shared"}), "")
        if block in self.names:
            prefix = self.names[block]
            left = self.held.get(prefix, set()) - places
            if left:
                self.held[prefix] = left
            else:
                self.held.pop(prefix, None)
                del self.names[block]
            self._remove_parked(block, place)
        elif place == "gpu" and block in self.twins:
            del self.twins[block]
        else:
            self._remove_parked(block, place)

    def _remove_parked(self, block: Any, place: str) -> None:
        for run in list(self.parked):
            same = run.place == place or {run.place, place} <= {"own", "shared"}
            if same and block in run.hashes:
                run.gone.add(block)
                if run.gone == set(run.hashes):
                    self.parked.remove(run)


class Naive:
    def __init__(self) -> None:
        self.groups: dict[tuple[str, int], dict[int, Group]] = {}

    def report(self, worker: str, rank: int, event: Event) -> None:
        groups = self.groups.setdefault((worker, rank), {})
        if isinstance(event, Cleared):
            groups.clear()
            return
        number = event.group_idx or 0
        place = PLACES.get(event.medium or "GPU", "own" if event.locality == "LOCAL" else "shared")
        if isinstance(event, Removed):
            places = {"own", "shared"} if event.medium == "STORAGE" else {place}
            for block in event.block_hashes:
                if number in groups:
                    groups[number].remove(block, places)
            return
        group = groups.setdefault(number, Group())
        self._store(group, event, place)

    @staticmethod
    def _store(group: Group, event: Stored, place: str) -> None:
        size = event.block_size
        tokens = [event.token_ids[at : at + size] for at in range(0, len(event.token_ids), size)]
        certain = place == "gpu" or event.extra_keys is not None
        run = Run(event.parent_block_hash, list(event.block_hashes), tokens, place, certain)
        if run.parent is None:
            first = (event.extra_keys or [None])[0] or [""]
            group.place(run, (str(first[0]), ()))
            return
        parent = group.names.get(run.parent)
        if parent is None and run.parent in group.twins:
            parent = group.twins[run.parent]
            if place == "gpu":
                del group.twins[run.parent]
                group.names[run.parent] = parent
                group.hold(parent, "gpu")
        if parent is not None:
            group.place(run, parent)
            return
        for other in group.parked:
            if other.place == place:
                other.gone -= set(run.hashes)
        for other in group.parked:
            if (other.parent, other.hashes, other.place) == (run.parent, run.hashes, place):
                return
        group.parked.append(run)

    def forget(self, worker: str) -> None:
        for name in [name for name in self.groups if name[0] == worker]:
            del self.groups[name]

    def match(self, tokens: list[int], size: int, salt: str) -> dict[str, tuple[int, int, int]]:
        found: dict[str, tuple[int, int, int]] = {}
        shared = {
            prefix
            for groups in self.groups.values()
            for group in groups.values()
            for prefix, places in group.held.items()
            if "shared" in places
        }
        for (worker, _), groups in self.groups.items():
            spans = [self._span(group, tokens, size, salt, shared) for group in groups.values()]
            if not spans or not all(any(span) for span in spans):
                continue
            gpu, host, end = (min(column) for column in zip(*spans, strict=True))
            item = (gpu, max(host - gpu, 0), max(end - max(gpu, host), 0))
            best = found.get(worker, (0, 0, 0))
            if (sum(item), item[0]) > (sum(best), best[0]):
                found[worker] = item
        return found

    @staticmethod
    def _span(
        group: Group, tokens: list[int], size: int, salt: str, shared: set[Prefix]
    ) -> tuple[int, int, int]:
        ends = [0, 0, 0]
        phase = 0
        for end in range(size, len(tokens) + 1, size):
            prefix = (salt, tuple(tokens[:end]))
            places = group.held.get(prefix, set())
            if end == size and not places - {"shared"}:
                break  # sparse: what only shared storage has is for everybody
            served = (
                "gpu" in places,
                "l1" in places,
                bool(places & {"l1", "own"}) or prefix in shared,
            )
            while phase < 3 and not served[phase]:
                phase += 1
            if phase == 3:
                break
            for column in range(phase, 3):
                ends[column] = end
        return ends[0], ends[1], ends[2]
