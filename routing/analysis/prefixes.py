"""Shared prompt prefixes from router records. Pure.

Records list a prompt's blocks as chained keyed hashes, so a hash identifies the whole prefix.
Records contain only the first blocks of long prompts (routing.engine.observe.decisions), which
limits the prefix length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, takewhile
from typing import Any

MIN_REQUESTS = 2
MAX_GROUPS = 20
_SIMILAR_SHARE = 0.5
"""A prefix of a listed one is listed too if at most this share of its requests continues alike."""


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """Requests with a common prefix. `workers`: request count per worker. `cached` of `prompt`
    tokens were reported as cached; None if not reported. `preview`: text at its beginning, where
    routers keep it.
    """

    digest: str
    name: str
    requests: int
    share: float
    tokens: int
    workers: tuple[tuple[str, int], ...]
    cached_share: float | None
    preview: str = ""


@dataclass(slots=True)
class _Node:
    """Prefix: request count, length and the longest identical continuation (`longest`)."""

    depth: int
    parent: str
    count: int
    longest: int = 0


def group_prefixes(
    records: Sequence[Mapping[str, Any]], names: Mapping[str, str]
) -> list[PrefixGroup]:
    """Return groups by shared tokens, largest first; named ones are always included."""
    prefixes = [[str(digest) for digest in record.get("prefix") or ()] for record in records]
    nodes = _build_tree(prefixes, names)
    ends = [
        (digest, node)
        for digest, node in nodes.items()
        if digest in names or (node.count >= MIN_REQUESTS and node.longest < node.count)
    ]
    ends.sort(key=lambda item: (item[0] not in names, -item[1].count * item[1].depth, item[0]))
    taken: dict[str, _Node] = {}
    for digest, node in ends:
        if len(taken) == MAX_GROUPS:
            break
        if digest in names or not _is_covered(digest, node, taken, nodes):
            taken[digest] = node
    group = _make_group(records, prefixes, taken, names)
    return sorted(group, key=lambda one: (-one.requests * one.tokens, one.digest))


def find_name(prefix: Sequence[str], names: Mapping[str, str]) -> str:
    """Return the name of the longest named prefix."""
    return next((names[digest] for digest in reversed(prefix) if digest in names), "")


def _build_tree(prefixes: Sequence[Sequence[str]], names: Mapping[str, str]) -> dict[str, _Node]:
    """Return prefixes that are named or occur in several requests."""
    counts = Counter(chain.from_iterable(prefixes))
    nodes: dict[str, _Node] = {}
    for prefix in prefixes:
        parent = ""
        for depth, digest in enumerate(prefix, 1):
            count = counts[digest]
            if count < MIN_REQUESTS and names.keys().isdisjoint(prefix[depth - 1 :]):
                break
            nodes.setdefault(digest, _Node(depth, parent, count))
            if parent:
                nodes[parent].longest = max(nodes[parent].longest, count)
            parent = digest
    return nodes


def _is_covered(
    digest: str, node: _Node, taken: Mapping[str, _Node], nodes: Mapping[str, _Node]
) -> bool:
    """Return whether a listed group is a prefix or continuation with similar frequency."""
    for other, prefix in taken.items():
        longer, shorter = (other, digest) if prefix.depth > node.depth else (digest, other)
        rare, often = sorted((prefix.count, node.count))
        if rare > _SIMILAR_SHARE * often and _is_prefix(longer, shorter, nodes):
            return True
    return False


def _is_prefix(longer: str, shorter: str, nodes: Mapping[str, _Node]) -> bool:
    parent = longer
    while parent and nodes[parent].depth > nodes[shorter].depth:
        parent = nodes[parent].parent
    return parent == shorter


@dataclass(slots=True)
class _GroupSums:
    """Token sums of a group, where the engine reported `prompt` and `cached`."""

    tokens: float = 0.0
    prompt: int = 0
    cached: int = 0
    workers: Counter[str] = field(default_factory=Counter)
    previews: list[str] = field(default_factory=list)


def _make_group(
    records: Sequence[Mapping[str, Any]],
    prefixes: Sequence[Sequence[str]],
    taken: Mapping[str, _Node],
    names: Mapping[str, str],
) -> list[PrefixGroup]:
    sums = {digest: _GroupSums() for digest in taken}
    for record, prefix in zip(records, prefixes, strict=True):
        tokens = int(record.get("prompt_tokens") or 0)
        size = tokens / max(int(record.get("prefix_blocks") or 0), len(prefix), 1)
        cached = record.get("cached_tokens")
        for digest in taken.keys() & set(prefix):
            prefix_sum = sums[digest]
            prefix_sum.tokens = taken[digest].depth * size
            prefix_sum.prompt += tokens if cached is not None else 0
            prefix_sum.cached += int(cached or 0)
            prefix_sum.workers[str(record.get("chosen") or "")] += 1
            if record.get("preview"):
                prefix_sum.previews.append(str(record["preview"]))
    total = sum(1 for prefix in prefixes if prefix)
    return [
        PrefixGroup(
            digest,
            names.get(digest, ""),
            node.count,
            node.count / total,
            round(sums[digest].tokens),
            tuple(sums[digest].workers.most_common()),
            sums[digest].cached / sums[digest].prompt if sums[digest].prompt else None,
            _shared_start(sums[digest].previews),
        )
        for digest, node in taken.items()
    ]


def _shared_start(texts: Sequence[str]) -> str:
    first, last = min(texts, default=""), max(texts, default="")  # these two share the least
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    return "".join(char for char, _ in same)
