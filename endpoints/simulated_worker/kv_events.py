"""KV events of vLLM 0.32 for the block model's inserts and evictions.

One batch per engine step with changes, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

GPU, CPU = "GPU", "CPU"
Event = dict[str, Any]


@dataclass(slots=True)
class _Block:
    """Event data of a block, kept while any tier holds it or may store it."""

    parent: bytes | None
    tokens: list[int]
    salt: str
    media: set[str]


def event_hash(block: bytes) -> int:
    """Return the low 64 bits, as vLLM does by default."""
    return int.from_bytes(block[-8:], "big")


class KvLog:
    """Collects events; `flush` passes them to `publish` as one batch."""

    def __init__(self, block_size: int, publish: Callable[[list[Event]], None]) -> None:
        self._block_size = block_size
        self._publish = publish
        self._blocks: dict[bytes, _Block] = {}
        self._events: list[Event] = []
        self._last: bytes | None = None  # last block of the event that may be extended

    def know(self, tokens: Sequence[int], hashes: Sequence[bytes], first: int, salt: str) -> None:
        """Register the prompt's blocks from `first` on, which may be stored now."""
        size = self._block_size
        for number in range(first, len(hashes)):
            if hashes[number] not in self._blocks:
                self._blocks[hashes[number]] = _Block(
                    hashes[number - 1] if number else None,
                    list(tokens[number * size : (number + 1) * size]),
                    "" if number else salt,
                    set(),
                )

    def forget(self, hashes: Sequence[bytes]) -> None:
        """Drop those blocks of a finished request that no tier holds."""
        for block in hashes:
            held = self._blocks.get(block)
            if held is not None and not held.media:
                del self._blocks[block]

    def stored(self, block: bytes, medium: str) -> None:
        held = self._blocks.get(block)
        if held is None or medium in held.media:
            return
        held.media.add(medium)
        self._append_event(block, held, medium)

    def removed(self, block: bytes, medium: str) -> None:
        held = self._blocks.get(block)
        if held is None or medium not in held.media:
            return
        held.media.discard(medium)
        if not held.media:
            del self._blocks[block]
        event: Event = {"type": "BlockRemoved", "block_hashes": [event_hash(block)]}
        self._events.append({**event, "medium": medium, "group_idx": 0})
        self._last = None

    def again(self, hashes: Sequence[bytes]) -> None:
        """Report reused blocks again from position 0 (`kv_cache_report_mode` full)."""
        self._last = None
        for block in hashes:
            held = self._blocks.get(block)
            if held is None:
                break
            self._append_event(block, held, GPU)
        self._last = None

    def cleared(self) -> None:
        """Record that the device was cleared; published with the next step, as in vLLM. L1 keeps
        its blocks, which the event does not express.
        """
        for block, held in list(self._blocks.items()):
            held.media.discard(GPU)
            if not held.media:
                del self._blocks[block]
        self._events.append({"type": "AllBlocksCleared"})
        self._last = None

    def flush(self) -> None:
        events, self._events, self._last = self._events, [], None
        if events:
            self._publish(events)

    def _append_event(self, block: bytes, known: _Block, medium: str) -> None:
        # The device's events carry extra keys per block; those of vLLM's connector do not.
        keys = [[known.salt] if known.salt else None] if medium == GPU else None
        before = self._events[-1] if self._events else None
        follows = self._last is not None and self._last == known.parent
        if before is not None and follows and before["medium"] == medium:
            before["block_hashes"].append(event_hash(block))
            before["token_ids"] += known.tokens
            if keys is not None:
                before["extra_keys"] += keys
            self._last = block
            return
        event: Event = {
            "type": "BlockStored",
            "block_hashes": [event_hash(block)],
            "parent_block_hash": event_hash(known.parent) if known.parent else None,
            "token_ids": list(known.tokens),
            "block_size": self._block_size,
            "lora_id": None,
            "medium": medium,
            "lora_name": None,
        }
        if keys is not None:
            event["extra_keys"] = keys
        self._events.append({**event, "group_idx": 0, "kv_cache_spec_kind": "full_attention"})
        self._last = block
