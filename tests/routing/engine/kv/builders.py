"""Engine events and block names for index tests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from routing.engine.kv import chain
from routing.engine.kv.events import EventApplier
from routing.engine.kv.index import Index
from routing.engine.kv.match import Matches, match
from routing.engine.kv.wire import Cleared, Event, Removed, Stored

SECRET = b"s" * 32
BLOCK = 2


def engine_hash(tokens: Sequence[int], salt: str = "", lora: str = "") -> int:
    """An engine's name for the block which ends here; nothing like ours."""
    text = repr((list(tokens), salt, lora)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[-8:], "big")


def stored(
    tokens: Sequence[int],
    first: int = 0,
    count: int | None = None,
    *,
    block: int = BLOCK,
    salt: str = "",
    lora: str = "",
    **more: Any,
) -> Stored:
    """Blocks `first` and on of a prompt, `count` of them or all."""
    last = len(tokens) // block if count is None else first + count
    ends = [tokens[: (number + 1) * block] for number in range(first, last)]
    keys: list[Any] = [[lora] if lora else [] for _ in ends]
    if salt and first == 0 and ends:
        keys[0] = [*keys[0], salt]
    values: dict[str, Any] = {
        "medium": "GPU",
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
        "extra_keys": [item or None for item in keys],
        "lora_name": lora or None,
        **more,
    }
    return Stored(
        block_hashes=[engine_hash(end, salt, lora) for end in ends],
        parent_block_hash=engine_hash(tokens[: first * block], salt, lora) if first else None,
        token_ids=list(tokens[first * block : last * block]),
        block_size=block,
        **values,
    )


def removed(
    tokens: Sequence[int], *, salt: str = "", lora: str = "", medium: str = "GPU", group: int = 0
) -> Removed:
    """The block which ends a prompt."""
    return Removed([engine_hash(tokens, salt, lora)], medium, group)


class Fleet:
    """An index and what feeds it."""

    def __init__(self) -> None:
        self.index = Index(SECRET)
        self.applier = EventApplier(self.index)

    def report(self, worker: str, *events: Event, rank: int = 0) -> None:
        for _ in self.applier.apply(self.index.rank(worker, rank, "m"), events):
            pass

    def settle(self) -> None:
        while self.index.sweeping:
            self.index.sweep()

    def names(
        self, tokens: Sequence[int], block: int = BLOCK, salt: str = "", lora: str = ""
    ) -> list[int]:
        root = self.index.root("m", lora, salt)
        return chain.extend_chain(root, chain.pack_tokens(tokens), block)

    def ask(self, tokens: Sequence[int], *blocks: int, salt: str = "", lora: str = "") -> Matches:
        sizes = blocks or (BLOCK,)
        return match(
            self.index, {size: self.names(tokens, size, salt=salt, lora=lora) for size in sizes}
        )

    def held(self, tokens: Sequence[int], **more: str) -> dict[str, tuple[int, int, int]]:
        found = self.ask(tokens, **more).workers
        return {worker: (item.gpu, item.l1, item.l2) for worker, item in found.items()}

    def counted(self, **expected: int) -> None:
        counts = {name: value for name, value in self.applier.counts.items() if value}
        assert counts == expected


CLEARED = Cleared()
