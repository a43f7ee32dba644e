"""Apply KV events to the index.

Set semantics: a block stored twice and removed once is gone, so predictions err low. Blocks with an
unknown parent do not count until it is known. Only full-attention cache groups are indexed;
sliding-window, Mamba and similar groups keep only a prompt's end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import xxhash

from routing.engine.kv import chain
from routing.engine.kv.holders import GPU, L1, L2_OWN, L2_SHARED, Holder, OrphanRun, Rank
from routing.engine.kv.index import KEY_MASK, SHARD_MASK, Index, add_hints
from routing.engine.kv.wire import BlockHash, Event, Removed, Stored, Tier, parse_tier

BLOCKS_PER_STEP = 64
_TWINS_LIMIT = 4096
_CLAIMS_LIMIT = 65_536
_ID_MASK = 2**64 - 1

_PREFIX_KINDS = frozenset(("full_attention", "mla_attention", "sink_full_attention"))
# Group kinds without prefixes. An unknown kind counts as one of them beside a group of a known
# kind; alone it is indexed, and the engine's answers tell whether that is right.
_WINDOWS = frozenset(
    (
        "sliding_window",
        "sliding_window_mla",
        "chunked_local_attention",
        "mamba",
        "encoder_only_attention",
        "cross_attention",
    )
)

OUTCOMES = (
    "stored",
    "removed",
    "cleared",
    "duplicate",
    "rebound",
    "healed_parent",
    "parked",
    "unparked",
    "dropped_parked",
    "removed_parked",
    "removed_unknown",
    "claimed",
    "claim_met",
    "malformed_event",
    "unknown_medium",
    "window_group",
    "unknown_kind",
    "draft_group",
    "copy_left",
    "hint_forgotten",
)


def engine_id(block_hash: BlockHash) -> int:
    """Reduce a hash to its low eight bytes, which both wire forms share; older engines send signed
    numbers.
    """
    if isinstance(block_hash, bytes):
        block_hash = int.from_bytes(block_hash[-8:], "big")
    return block_hash & _ID_MASK


def _engine_ids(hashes: list[BlockHash]) -> list[int]:
    """Fast path: the hashes usually are unsigned numbers already."""
    try:
        if min(hashes, default=0) >= 0:  # type: ignore[operator]  # TypeError where one is bytes
            return hashes  # type: ignore[return-value]  # all of them are int
    except TypeError:
        pass
    return [engine_id(block_hash) for block_hash in hashes]


def _parse_inputs(event: Stored) -> tuple[list[bytes] | None, str]:
    """Return other inputs of each block as bytes (None: no block has any) and the cache salt.

    On the wire they are one untagged list: adapter name, pairs for multi-modal inputs, salt (first
    block only), embedding digests as bytes.
    """
    if event.extra_keys is None or not any(event.extra_keys):
        return None, ""
    salt = ""
    inputs: list[bytes] = []
    for number, keys in enumerate(event.extra_keys[: len(event.block_hashes)]):
        left: list[Any] = list(keys or ())
        if event.lora_name and event.lora_name in left:
            left.remove(event.lora_name)
        if number == 0 and event.parent_block_hash is None:
            texts = [item for item in left if isinstance(item, str)]
            if texts:
                salt = texts[-1]
                left.remove(salt)
        inputs.append(msgspec.msgpack.encode(left) if left else b"")
    inputs += [b""] * (len(event.block_hashes) - len(inputs))
    return (inputs if any(inputs) else None), salt


class EventApplier:
    """Writer of one index; `counts`: blocks by outcome."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.counts = dict.fromkeys(OUTCOMES, 0)

    def apply(self, rank: Rank, events: Sequence[Event]) -> Iterator[None]:
        """Apply events in order. Ends early if the rank is emptied concurrently."""
        epoch = rank.epoch
        place: tuple[int | None, str | None] = (None, None)
        removed: list[BlockHash] = []  # consecutive removals, one hash each
        for event in events:
            if isinstance(event, Removed):
                hashes = event.block_hashes
                if event.remaining_copy_counts is not None:
                    hashes = self._last_copies(hashes, event.remaining_copy_counts)
                if removed and (
                    len(removed) >= BLOCKS_PER_STEP or place != (event.group_idx, event.medium)
                ):
                    self._remove(rank, place, removed)
                    removed = []
                    yield
                    if rank.epoch != epoch:
                        return
                place = event.group_idx, event.medium
                if len(hashes) <= BLOCKS_PER_STEP:
                    removed += hashes
                    continue
                for index in range(0, len(hashes), BLOCKS_PER_STEP):
                    self._remove(rank, place, hashes[index : index + BLOCKS_PER_STEP])
                    yield
                    if rank.epoch != epoch:
                        return
                continue
            if removed:
                self._remove(rank, place, removed)
                removed = []
            if isinstance(event, Stored):
                for _ in self._store(rank, event):
                    yield
                    if rank.epoch != epoch:
                        return
            else:
                self.counts["cleared"] += 1
                self._index.on_clear(rank.worker)
                if self._index.observer is not None:
                    self._index.observer.cleared(rank.worker)
                self._index.empty(rank)
                epoch = rank.epoch
            yield
            if rank.epoch != epoch:
                return
        if removed:
            self._remove(rank, place, removed)

    def _last_copies(self, hashes: list[BlockHash], left: list[int]) -> list[BlockHash]:
        """Return the blocks of which no copy is left. Those without a count are taken as gone."""
        gone = [
            block_hash
            for number, block_hash in enumerate(hashes)
            if number >= len(left) or left[number] <= 0
        ]
        self.counts["copy_left"] += len(hashes) - len(gone)
        return gone

    def _note_kind(self, rank: Rank, group: int, event: Stored) -> None:
        """Note groups that keep no prefixes, by their kind."""
        kind = event.kv_cache_spec_kind
        if event.is_draft:  # of a speculative decoder, beside the model's own groups
            self.counts["draft_group"] += 1
            rank.windows.add(group)
        elif kind in _PREFIX_KINDS:
            rank.prefix_groups.add(group)
        elif kind in _WINDOWS:
            rank.windows.add(group)
        elif kind is not None:
            self.counts["unknown_kind"] += 1
            if rank.prefix_groups - {group}:
                rank.windows.add(group)

    def _store(self, rank: Rank, event: Stored) -> Iterator[None]:
        group = event.group_idx or 0
        counts = self.counts
        self._note_kind(rank, group, event)
        where = parse_tier(event.medium)
        if group in rank.windows:
            counts["window_group"] += 1
            return
        if where is None:
            counts["unknown_medium"] += 1
            return
        index = self._index
        index.tiered = index.tiered or where is not Tier.GPU
        keys = _engine_ids(event.block_hashes)
        shared = event.locality is None or event.locality.upper() != "LOCAL"
        if not event.token_ids:
            holder = index.holder(rank, group)
            self._claim(holder, keys, holder.bit(where, shared))
            return
        try:
            data = chain.pack_tokens(event.token_ids)
        except OverflowError:
            data = b""
        size = event.block_size
        if size < 1 or not data or len(data) != len(keys) * size * chain.TOKEN_BYTES:
            counts["malformed_event"] += 1
            return
        inputs, salt = _parse_inputs(event)
        # Connectors report tokens without salt and other inputs: the device's event takes
        # precedence.
        certain = where is Tier.GPU or event.extra_keys is not None
        holder = index.holder(rank, group)
        parent = event.parent_block_hash
        if parent is None:
            rank.block_sizes.add(size)
            run = OrphanRun(0, keys, data, size, inputs, where, shared, certain)
            name: int | None = index.root(rank.model, event.lora_name or "", salt)
        else:
            run = OrphanRun(engine_id(parent), keys, data, size, inputs, where, shared, certain)
            name = self._parent(holder, run)
        if name is not None:
            yield from self._place(holder, run, name)
        else:
            counts["parked"] += len(run.keys)
            counts["dropped_parked"] += holder.parked.add(run)

    def _parent(self, holder: Holder, run: OrphanRun) -> int | None:
        """Return the parent's name, or None. A device store proves that the parent is on the
        device: the request holds it.
        """
        name = holder.blocks.get(run.parent)
        if name is None:
            name = holder.twins.get(run.parent)
            if name is not None and run.tier is Tier.GPU:
                self.counts["healed_parent"] += 1
                del holder.twins[run.parent]
                holder.blocks.put(run.parent, name)
                self._index.set(name, holder.bits[GPU])
        return name

    def _place(self, holder: Holder, run: OrphanRun, parent: int) -> Iterator[None]:
        """Name the blocks of a run and of all runs waiting for them; yields between pieces."""
        waiting = [(run, parent)]
        while waiting:
            run, parent = waiting.pop()
            step = run.block_size * chain.TOKEN_BYTES
            bit = holder.bit(run.tier, run.shared)
            for index in range(0, len(run.keys), BLOCKS_PER_STEP):
                if index:
                    yield
                keys = run.keys[index : index + BLOCKS_PER_STEP]
                data = run.data[index * step : (index + BLOCKS_PER_STEP) * step]
                inputs = run.inputs[index : index + BLOCKS_PER_STEP] if run.inputs else None
                if inputs is None and run.certain:
                    names = chain.extend_chain(parent, data, run.block_size)
                else:
                    names = self._names(holder, run, keys, data, inputs, parent)
                parent = names[-1]
                self._hold(holder, run, keys, names, bit)
                if holder.parked:
                    for key, name in zip(keys, names, strict=True):
                        for child in holder.parked.children(key):
                            self.counts["unparked"] += len(child.keys)
                            waiting.append((child, name))
            if waiting:
                yield

    @staticmethod
    def _names(
        holder: Holder,
        run: OrphanRun,
        keys: list[int],
        data: bytes,
        inputs: list[bytes] | None,
        parent: int,
    ) -> list[int]:
        """Slow path: blocks with other inputs, or with a more accurate name."""
        names = []
        step = run.block_size * chain.TOKEN_BYTES
        for number, key in enumerate(keys):
            name = None if run.certain else holder.blocks.get(key)
            if name is None:
                part = data[number * step : (number + 1) * step]
                if inputs:
                    part += inputs[number]
                name = xxhash.xxh3_64_intdigest(part, parent)
            parent = name
            names.append(name)
        return names

    def _hold(
        self, holder: Holder, run: OrphanRun, keys: list[int], names: list[int], bit: int
    ) -> None:
        """Hot loop, about 2 µs per block."""
        if run.gone:
            left = [pair for pair in zip(keys, names, strict=True) if pair[0] not in run.gone]
            keys, names = [pair[0] for pair in left], [pair[1] for pair in left]
        index = self._index
        befores = holder.blocks.put_all(keys, names)
        if befores is not None:
            self._known(holder, run, keys, names, befores, bit)
        shards = index.shards
        again = 0
        for name in names:
            short = name & KEY_MASK
            shard = shards[short & SHARD_MASK]
            mask = shard.get(short)
            if mask is None:
                shard[short] = bit
            elif mask & bit:
                again += 1
            else:
                shard[short] = index.mask(mask | bit)
        self.counts["stored"] += len(keys) - again
        self.counts["duplicate"] += again
        if run.tier is Tier.L2:
            self._stored_in_l2(holder, keys, names)
        if holder.claims:
            for key, name in zip(keys, names, strict=True):
                if key in holder.claims:
                    self.counts["claim_met"] += 1
                    bits = holder.claims.pop(key)
                    index.set(name, bits)
                    if bits & (holder.bits[L2_OWN] | holder.bits[L2_SHARED]):
                        self._note_storage(holder, [name])

    def _known(
        self,
        holder: Holder,
        run: OrphanRun,
        keys: list[int],
        names: list[int],
        befores: list[int | None],
        bit: int,
    ) -> None:
        for key, name, before in zip(keys, names, befores, strict=True):
            if before is None:
                continue
            if before != name:
                self._rebind(holder, before, name)
            elif run.tier is Tier.GPU and self._index.held(holder, name) & bit:
                twins = holder.twins
                if len(twins) >= _TWINS_LIMIT:
                    del twins[next(iter(twins))]
                twins[key] = name

    def _rebind(self, holder: Holder, before: int, name: int) -> None:
        """Replace a connector's name without salt by the device's."""
        self.counts["rebound"] += 1
        bits = self._index.held(holder, before)
        if bits:
            self._index.unset(holder, before, bits)
            self._index.set(name, bits)

    def _stored_in_l2(self, holder: Holder, keys: list[int], names: list[int]) -> None:
        self.counts["hint_forgotten"] += add_hints(self._index, holder, keys)
        self._note_storage(holder, names)

    def _note_storage(self, holder: Holder, names: list[int]) -> None:
        if self._index.observer is not None:
            self._index.observer.stored_in_l2(names, holder.rank.batch_at)

    def _claim(self, holder: Holder, keys: list[int], bit: int) -> None:
        """Store without tokens: counts once the id has a name."""
        if bit == holder.bits[L2_OWN] or bit == holder.bits[L2_SHARED]:
            blocks = (holder.blocks.get(key) for key in keys)
            self._stored_in_l2(holder, keys, [name for name in blocks if name is not None])
        claims = holder.claims
        for key in keys:
            name = holder.blocks.get(key)
            if name is not None:
                self.counts["stored"] += 1
                self._index.set(name, bit)
                continue
            self.counts["claimed"] += 1
            if len(claims) >= _CLAIMS_LIMIT:
                del claims[next(iter(claims))]
            claims[key] = claims.get(key, 0) | bit

    def _remove(
        self, rank: Rank, place: tuple[int | None, str | None], hashes: list[BlockHash]
    ) -> None:
        group = place[0] or 0
        counts = self.counts
        if group in rank.windows:
            counts["window_group"] += 1
            return
        where = parse_tier(place[1])
        if where is None:
            counts["unknown_medium"] += 1
            return
        holder = rank.groups.get(group)
        if holder is None:
            counts["removed_unknown"] += len(hashes)
            return
        bits = holder.bits
        if where is Tier.L2:  # some connectors do not report which storage
            gone = bits[L2_OWN] | bits[L2_SHARED]
        else:
            gone = bits[GPU if where is Tier.GPU else L1]
        keys = _engine_ids(hashes)
        shards = self._index.shards
        names = holder.blocks.pop_all(keys)
        if self._index.observer is not None:
            self._index.observer.evicted(rank.worker, where, names)
        if where is Tier.GPU:
            self._index.on_removed(rank.worker, names)
        for key, name in zip(keys, names, strict=True):
            if name is None:
                self._remove_unplaced(holder, key, where, gone)
                continue
            counts["removed"] += 1
            short = name & KEY_MASK
            shard = shards[short & SHARD_MASK]
            if shard.get(short) == gone:
                del shard[short]
            elif self._index.unset(holder, name, gone):
                holder.blocks.put(key, name)  # still held in another tier
            if holder.parked:
                holder.parked.remove(key, where)

    def _remove_unplaced(self, holder: Holder, key: int, where: Tier, gone: int) -> None:
        counts = self.counts
        if where is Tier.GPU and holder.twins.pop(key, None) is not None:
            counts["removed"] += 1
        elif holder.parked and holder.parked.remove(key, where):
            counts["removed_parked"] += 1
        elif key in holder.claims:
            left = holder.claims[key] & ~gone
            if left:
                holder.claims[key] = left
            else:
                del holder.claims[key]
        else:
            counts["removed_unknown"] += 1
