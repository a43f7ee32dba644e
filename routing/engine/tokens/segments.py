"""LRU cache of tokenized text segments; bounded in bytes, event loop only.

Joined ids equal tokenizing the whole text, given correct cuts (splitter.py). A part is keyed by its
text and the part before it; chains are touched from end to start, so that eviction cuts their end.
"""

from __future__ import annotations

import sys
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from routing.engine.kv import chain
from routing.engine.tokens.splitter import Splitter

_NODE_BYTES = 420  # estimated memory of a node
_HASH_BYTES = 40  # an int of 64 bits in a tuple
_MAX_CHAINS = 4  # chains (by root and block size) per part

ChainKey = tuple[int, int]  # chain root, tokens per block


@dataclass(slots=True, eq=False)
class SegmentNode:
    number: int
    data: bytes
    size: int
    chains: dict[ChainKey, tuple[int, ...]] | None = None


@dataclass(slots=True, eq=False)
class CachedTokens:
    """Parts of a text, and the nodes of its known prefix.

    `prefix`: ids the tokenizer prepends; such texts have separate chains.
    """

    nodes: list[SegmentNode]
    parts: list[str]
    prefix: bytes

    @property
    def missing(self) -> list[str]:
        return self.parts[len(self.nodes) :]


def _root_key(prefix: bytes) -> int:
    return -1 if prefix else 0


class TokenSequence:
    """Token ids of a prompt, with lazily computed block hashes."""

    __slots__ = ("_cache", "_nodes", "count", "data")

    def __init__(
        self, data: bytes, cache: SegmentCache | None = None, nodes: Sequence[SegmentNode] = ()
    ) -> None:
        self.data = data
        self.count = len(data) // chain.TOKEN_BYTES
        self._cache = cache
        self._nodes = nodes

    @property
    def ids(self) -> list[int]:
        return array("I", self.data).tolist()

    def chain(self, root: int, block_tokens: int) -> list[int]:
        if self._cache is None:
            return chain.extend_chain(root, self.data, block_tokens)
        return self._cache.chain(self, self._nodes, (root, block_tokens))


class SegmentCache:
    def __init__(self, splitter: Splitter, limit_bytes: int) -> None:
        self._splitter = splitter
        self._limit = limit_bytes
        self._nodes: OrderedDict[tuple[int, str], SegmentNode] = OrderedDict()
        self._numbers = 0
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def look_up(self, text: str, prefix: bytes = b"") -> CachedTokens:
        parts = self._splitter.split(text)
        nodes: list[SegmentNode] = []
        nodes_by_key = self._nodes
        number = _root_key(prefix)
        for part in parts:
            node = nodes_by_key.get((number, part))
            if node is None:
                break
            nodes.append(node)
            number = node.number
        cached = CachedTokens(nodes, parts, prefix)
        self._touch(cached, nodes)
        return cached

    def put_together(self, found: CachedTokens, ids: Sequence[array[int]]) -> TokenSequence:
        """Cache the missing parts' ids (one array each) and return the sequence."""
        nodes = list(found.nodes)
        number = nodes[-1].number if nodes else _root_key(found.prefix)
        nodes_by_key = self._nodes
        for part, part_ids in zip(found.missing, ids, strict=True):
            node = nodes_by_key.get((number, part))
            if node is None:  # may have been added concurrently
                self._numbers += 1
                data = part_ids.tobytes() if nodes else found.prefix + part_ids.tobytes()
                size = _NODE_BYTES + sys.getsizeof(part) + len(data)
                node = nodes_by_key[number, part] = SegmentNode(self._numbers, data, size)
                self.bytes += size
            nodes.append(node)
            number = node.number
        self._touch(found, nodes)
        self._shrink()
        if not nodes:
            return TokenSequence(found.prefix)
        return TokenSequence(b"".join([node.data for node in nodes]), self, nodes)

    def _touch(self, found: CachedTokens, nodes: Sequence[SegmentNode]) -> None:
        """Touch from end to start, so that earlier parts are newer."""
        renew = self._nodes.move_to_end
        for index in range(len(nodes) - 1, -1, -1):
            if nodes[index].size:  # else evicted meanwhile
                number = nodes[index - 1].number if index else _root_key(found.prefix)
                renew((number, found.parts[index]))

    def _shrink(self) -> None:
        while self.bytes > self._limit and self._nodes:
            _, node = self._nodes.popitem(last=False)
            self.bytes -= node.size
            node.size = 0  # marks eviction; in-flight prompts may hold the node

    def chain(
        self, tokens: TokenSequence, nodes: Sequence[SegmentNode], key: ChainKey
    ) -> list[int]:
        root, block_tokens = key
        hashes: list[int] = []
        known_nodes = 0
        for node in nodes:
            part = node.chains.get(key) if node.chains is not None else None
            if part is None:
                break
            hashes += part
            known_nodes += 1
        if known_nodes == len(nodes):
            return hashes
        block_bytes = block_tokens * chain.TOKEN_BYTES
        done = len(hashes)
        rest = memoryview(tokens.data)[done * block_bytes :]
        hashes += chain.extend_chain(hashes[-1] if hashes else root, rest, block_tokens)
        known_length = sum([len(node.data) for node in nodes[:known_nodes]])
        for node in nodes[known_nodes:]:
            known_length += len(node.data)
            ends = known_length // block_bytes
            self._keep(node, key, tuple(hashes[done:ends]))
            done = ends
        self._shrink()
        return hashes

    def _keep(self, node: SegmentNode, key: ChainKey, hashes: tuple[int, ...]) -> None:
        if node.chains is None or len(node.chains) >= _MAX_CHAINS:
            if node.chains is not None and node.size:
                freed = sum([len(part) for part in node.chains.values()]) * _HASH_BYTES
                node.size -= freed
                self.bytes -= freed
            node.chains = {}
        node.chains[key] = hashes
        if node.size:
            node.size += len(hashes) * _HASH_BYTES
            self.bytes += len(hashes) * _HASH_BYTES
