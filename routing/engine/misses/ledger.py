"""The miss ledger: the cause of every prompt token that a worker had to compute.

Called for a request as it is placed and as it ends, and for changes of workers and their caches.
Bounded: HISTORY_BLOCKS prompt blocks, EVICTIONS_KEPT, SKETCHES_KEPT, a day of sums in slots.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from routing.engine.kv.wire import Tier
from routing.engine.misses import attribution as causes
from routing.engine.misses.attribution import MissFacts, Reach, split
from routing.engine.misses.history import (
    KNOWN,
    NEW,
    NOT_CACHEABLE,
    Evictions,
    PromptHistory,
    Replacements,
    SeenPrompt,
    StoredBlocks,
    missing_blocks,
    placed_elsewhere,
    placed_unmatched,
)
from routing.engine.misses.layouts import EarlyChange, LayoutReplay
from routing.engine.misses.peer_prompts import PeerPrompts
from routing.engine.misses.sketch import CAUSES, SketchBook, read_prompt
from routing.engine.misses.sums import MissSums
from routing.engine.observe.decisions import MissSplit
from routing.engine.observe.metrics import CALLERS, CONSOLE
from routing.engine.prompt.engine_request import reads_cache

if TYPE_CHECKING:
    from routing.engine.kv.match import Match
    from routing.engine.observe.metric_types import Registry
    from routing.engine.prompt.identity import Identity
    from routing.engine.request import RoutedRequest

DEFAULT_BLOCK: Final = 16  # vLLM's on GPUs; used until the engine's is known
_MIN_COMPARED_BYTES: Final = 512  # unknown part from which a prompt is compared with earlier ones
_MIN_COMPARED_SHARE: Final = 4  # one quarter of the prompt
_HITS_KEPT: Final = 1024
_TIERS: Final = {
    Tier.GPU: causes.EVICTED_DEVICE,
    Tier.L1: causes.EVICTED_L1,
    Tier.L2: causes.EVICTED_L2,
}
_TIER_NUMBERS: Final = {tier: number for number, tier in enumerate(_TIERS)}
_EVICTED: Final = tuple(_TIERS.values())
_LOST: Final = {
    "restarted": causes.LOST_RESTART,
    "lost": causes.LOST_RESTART,
    "engine_died": causes.LOST_RESTART,
    "reset": causes.LOST_RESET,
    "removed": causes.LOST_SCALE_DOWN,
}


class MissLedger:
    def __init__(self, registry: Registry) -> None:
        self.history = PromptHistory()
        self.peers = PeerPrompts(self.history)
        self.replacements = Replacements()
        self.stored = StoredBlocks()
        self.evictions = Evictions()
        self.sketches = SketchBook()
        self.sums = MissSums()
        self.layouts = LayoutReplay()
        self._block_bytes = 1
        self._hashing = False
        self._sizes: dict[str, int] = {}  # block size in tokens by worker, where known
        tokens = registry.counter(
            "emberline_router_computed_prompt_tokens_total",
            "Prompt tokens that engines computed, by cause (miss ledger).",
            ("cause", "traffic"),
        )
        self._tokens = {cause: tokens.child(cause, CALLERS) for cause in causes.CAUSES}
        self._of_console = {cause: tokens.child(cause, CONSOLE) for cause in causes.CAUSES}
        self._hits: dict[int, MissSplit] = {}
        self._started = time.time()
        self._skipped = registry.counter(
            "emberline_router_miss_comparisons_skipped_total",
            "Prompts not compared with earlier ones, since the time for it was used up; "
            "a change in them counts as first_seen.",
        ).child()
        self._unreported = registry.counter(
            "emberline_router_miss_unreported_requests_total",
            "Requests whose cached tokens were not reported, such as those cut off; left out.",
        ).child()
        registry.before_render.append(self._refresh)

    def configure(self, block_bytes: int, hashing: bool, l2_ttl_s: int = 0) -> None:
        """`hashing`: the strategy hashes prompts. `l2_ttl_s` 0: L2 keeps blocks until eviction."""
        self._hashing = hashing
        self.stored.ttl_s = l2_ttl_s
        if block_bytes != self._block_bytes:
            self._block_bytes = block_bytes
            self.history = PromptHistory()  # other blocks, other hashes
            self.peers = PeerPrompts(self.history)

    def _refresh(self) -> None:
        self._skipped.set(self.sketches.skipped)

    # -- a request is placed

    def arrived(self, exchange: RoutedRequest, identity: Identity) -> None:
        exchange.seen = self._look_up(exchange, identity)

    def _look_up(self, exchange: RoutedRequest, identity: Identity) -> SeenPrompt | None:
        """Return what earlier prompts share with this one; None: its blocks are not hashed."""
        chain = exchange.facts.chain
        data = identity.data
        if not chain:
            return SeenPrompt([]) if self._hashing and data is not None else None
        if data is not None and (
            data.get("prompt_logprobs") or (data.get("echo") and data.get("logprobs"))
        ):
            return NOT_CACHEABLE
        if self.peers.active:
            self.peers.placed(exchange, time.time())
        if self.history.knows(chain):
            return KNOWN
        spans = self.history.spans(chain)
        return SeenPrompt(spans) if spans else NEW

    def compare(self, exchange: RoutedRequest, identity: Identity) -> None:
        """Look for an early change in a prompt with a large unknown part. Called once its worker
        has it, since no choice needs this.
        """
        seen, count = exchange.seen, len(exchange.facts.chain)
        if seen is None or not count or identity.data is None or exchange.over:
            return
        known = seen.spans[-1][0] if seen.spans else 0
        unknown = count - known
        if (
            (seen is not NEW and not seen.spans)  # known, or not cacheable
            or unknown * self._block_bytes < _MIN_COMPARED_BYTES
            or unknown * _MIN_COMPARED_SHARE < count
            or not self.sketches.has_time()
        ):
            return
        read = read_prompt(exchange.head.path, identity)
        if read is not None:
            data, seed, _ = read
            key = exchange.decision.key_id
            change = self.sketches.compare(data, seed, known * self._block_bytes, key)
            if seen.spans or change is not None:
                exchange.seen = SeenPrompt(seen.spans, change, len(data))
            if exchange.diagnosis is not None and change is not None:
                exchange.diagnosis.foreign = change.foreign

    # -- a request ends

    def ended(self, exchange: RoutedRequest) -> None:
        """Attribute the computed tokens of an answered request."""
        decision, seen_prompt = exchange.decision, exchange.seen
        if not decision.counted or not decision.prompt_tokens:
            return
        features, cached, prompt = exchange.facts, decision.cached_tokens, decision.prompt_tokens
        chain = features.chain
        of_console = decision.key_id == CONSOLE
        counters = self._of_console if of_console else self._tokens
        if cached is None or decision.estimated:  # not reported, or cut off before
            if not of_console:
                self._unreported.value += 1
                self.sums.unreported()
            if chain and decision.ttft_s is not None:  # a token of a stream: its prompt is computed
                self.history.interrupted(decision.chosen, chain, decision.time)
            return
        size = self._sizes.get(decision.chosen, DEFAULT_BLOCK)
        chains = features.blocks.chains if features.blocks is not None else {}
        if chains and size not in chains:
            size = min(chains)
        usable = (prompt - 1) // size * size
        hit = cached >= usable
        if hit:  # the usual case
            rest = prompt - cached if cached < prompt else 0
            counters[causes.BELOW_BLOCK].value += rest
            decision.misses = self._hits.get(rest) or self._hit(rest)
        else:
            split = decision.misses = self._attribute(exchange, seen_prompt, cached, usable, size)
            for cause, tokens in split.tokens.items():
                counters[cause].value += tokens
        if not of_console:
            self.sums.add(decision, chain[0] if chain else 0)
        if chain:
            self.history.used(decision.chosen, chain, decision.time, hit)

    def _hit(self, rest: int) -> MissSplit:
        split = MissSplit({causes.BELOW_BLOCK: rest} if rest else {})
        if len(self._hits) < _HITS_KEPT:
            self._hits[rest] = split
        return split

    def _attribute(
        self, exchange: RoutedRequest, seen: SeenPrompt | None, cached: int, usable: int, size: int
    ) -> MissSplit:
        prompt = exchange.decision.prompt_tokens
        whole = causes.NOT_HASHED if seen is None else ""
        if not reads_cache(exchange.ask) or seen is NOT_CACHEABLE:
            whole = causes.NOT_CACHEABLE
        if seen is None or whole:
            return MissSplit(split(MissFacts(prompt, cached, usable, whole=whole)))
        doubled = self.peers.take_doubled(exchange)
        if not doubled and self._is_rest_new(exchange, seen, cached, size):
            rest = {causes.FIRST_SEEN: usable - cached, causes.BELOW_BLOCK: prompt - usable}
            return MissSplit(rest)
        return self._search(exchange, seen, cached, size, doubled)

    def _search(
        self, exchange: RoutedRequest, seen: SeenPrompt, cached: int, size: int, doubled: int = 0
    ) -> MissSplit:
        """Attribute by all that is known of the prompt. `doubled`: blocks a peer sent elsewhere."""
        decision, misses = exchange.decision, MissSplit()
        prompt = decision.prompt_tokens
        if seen is KNOWN:
            seen = SeenPrompt(self.history.spans(exchange.facts.chain))
        reaches = self._reaches(exchange, seen, cached, size, misses, doubled)
        misses.tokens = split(MissFacts(prompt, cached, (prompt - 1) // size * size, reaches))
        if _TIMED.isdisjoint(misses.tokens):
            misses.age_s = misses.evicted_at = None
        elif misses.age_s is not None and not _GONE.isdisjoint(misses.tokens):
            self.layouts.evicted(misses.age_s)
        if _CHANGED.isdisjoint(misses.tokens):
            misses.offset, misses.place = None, ""
        elif seen.change is not None and seen.change.template and decision.key_id != CONSOLE:
            self._note_layout(exchange, seen, misses, size)
        return misses

    @staticmethod
    def _is_rest_new(exchange: RoutedRequest, seen: SeenPrompt, cached: int, size: int) -> bool:
        """Return True if nothing known of the prompt reaches a block beyond its cached part: no
        cause of `_reaches` can apply.
        """
        if seen is KNOWN or seen.change is not None:
            return False
        decision, features = exchange.decision, exchange.facts
        prompt, estimated, whole = decision.prompt_tokens, features.tokens, len(features.chain)
        per_block = prompt / max(estimated / features.block_tokens, whole, 1.0)
        least = min(cached + size + (0 if features.blocks else per_block), prompt)
        if decision.predicted >= least:
            return False
        if seen.spans:
            blocks = seen.spans[-1][0]  # the longest
            if blocks >= whole or round(blocks * per_block) >= least:
                return False
        pick = exchange.placing.pick_of(decision.chosen) if exchange.placing else None
        if pick and pick.tiers is not None and pick.tiers[decision.chosen].tokens >= least:
            return False
        scale = prompt / estimated if estimated else 1.0
        for worker, matched, _, _, _ in decision.candidates:
            if matched and round(matched * scale) >= least and worker != decision.chosen:
                return False
        return True

    def _note_layout(
        self, exchange: RoutedRequest, seen: SeenPrompt, found: MissSplit, size: int
    ) -> None:
        assert seen.change is not None
        decision = exchange.decision
        stable = round(seen.change.stable * decision.prompt_tokens / max(seen.size, 1))
        changed = {cause: n for cause, n in found.tokens.items() if cause in _CHANGED}
        change = EarlyChange(
            *(seen.change.template, changed, found.offset or 0, stable, found.place, decision.id),
            exchange.facts.chain[0],
        )
        tenure = self.history.here(decision.chosen)
        saved = self.layouts.save(change, tenure, size, decision.time)
        self.sums.add_layout(change, saved, decision.time)

    def _reaches(
        self,
        exchange: RoutedRequest,
        seen: SeenPrompt,
        cached: int,
        size: int,
        found: MissSplit,
        doubled: int,
    ) -> list[Reach]:
        decision, features = exchange.decision, exchange.facts
        prompt = decision.prompt_tokens
        scale = prompt / features.tokens if features.tokens else 1.0
        whole = len(features.chain)
        per_block = prompt / max(features.tokens / features.block_tokens, whole, 1.0)
        evicted, gone_at = self._eviction(exchange, cached, decision.chosen)

        def tokens(blocks: int) -> int:
            end = round(blocks * per_block)
            # The rest behind the last whole block shares the block's fate; if all before it is
            # cached and nothing was evicted, the prompt has grown by it.
            missing = evicted or not cached or end >= cached + size + per_block
            return prompt if missing and blocks >= whole else end

        here = self.history.here(decision.chosen)
        live = self.history.live()
        held_here = held_live = elsewhere = 0
        last = 0.0
        for blocks, bits, used in seen.spans:
            reach = tokens(blocks)
            if bits & here:
                held_here = max(held_here, reach)
            elif bits & live:
                held_live = max(held_live, reach)
                elsewhere = bits & live
            if reach > cached and not last:
                last = used
        if last:
            found.age_s, found.evicted_at = max(decision.time - last, 0.0), gone_at or None
        reaches: list[Reach] = []
        lost = self._lost(seen, tokens)
        if not self.history.ended_since(decision.chosen, decision.time):
            reaches = self._predicted(exchange, cached, held_here, evicted, gone_at, lost)
        reaches += placed_elsewhere(decision, scale)
        reaches.append((causes.PLACED_ROUTER, tokens(doubled) if doubled else 0))
        cause = evicted or causes.EVICTED_UNKNOWN
        reaches += [(cause, held_here), *lost]
        if held_live and not evicted:
            workers = self.history.workers(elsewhere)
            evicted_spans = (self._eviction(exchange, cached, worker)[0] for worker in workers)
            indexed = features.blocks is not None and last >= self.evictions.complete_since
            cause = next(filter(None, evicted_spans), placed_unmatched(decision, indexed))
        reaches.append((cause, held_live))
        # Ends within a block, and in an estimated token, are no lost block.
        least = min(cached + size + (0 if features.blocks else per_block), prompt)
        reaches = [reach for reach in reaches if reach[1] >= least]
        change = seen.change
        if change is not None:
            ratio = prompt / max(seen.size, 1)
            found.offset, found.place = round(change.offset * ratio), change.place
            reaches.append((CAUSES[change.kind], round(change.end * ratio)))
        return reaches

    def _eviction(self, exchange: RoutedRequest, cached: int, worker: str) -> tuple[str, float]:
        """Return how the first missing block left a worker, as its events reported."""
        for name in missing_blocks(exchange.facts, cached):
            if (eviction := self.evictions.find(worker, name)) is not None:
                return _EVICTED[eviction[0]], eviction[1]
        return "", 0.0

    def _predicted(
        self,
        exchange: RoutedRequest,
        cached: int,
        held_here: int,
        evicted: str,
        gone_at: float,
        lost: list[Reach],
    ) -> list[Reach]:
        """Return the causes of tokens that the chosen worker was expected to hold."""
        decision, features = exchange.decision, exchange.facts
        predicted = decision.predicted
        pick = exchange.placing.pick_of(decision.chosen) if exchange.placing else None
        if pick is None or pick.tiers is None:
            gone = (causes.EVICTED_UNKNOWN, min(predicted, held_here))
            answered = max([held_here, *(reach for _, reach in lost)])
            if predicted <= answered + features.block_tokens:
                return [gone]
            # Sent there before, but not answered: still being computed.
            return [gone, *lost, (causes.IN_FLIGHT, predicted)]
        held: Match = pick.tiers[decision.chosen]
        if pick.guessed:  # answered before, and evicted meanwhile, or still being computed
            gone = (evicted or causes.EVICTED_UNKNOWN, min(held_here, held.tokens))
            return [gone, (causes.IN_FLIGHT, held.tokens)]
        if gone_at >= decision.time:  # evicted after the decision
            return [(evicted, predicted)]
        expired = self.stored.expired(features, cached, decision.time, time.time())
        storage = causes.EXPIRED_L2 if expired else causes.EVICTED_L2
        return [(causes.INDEX_STALE, held.gpu + held.l1), (storage, held.tokens)]

    def _lost(self, seen: SeenPrompt, tokens: Callable[[int], int]) -> list[Reach]:
        """Return what ended tenures had computed, the latest end first."""
        reaches: list[Reach] = []
        for tenure in reversed(self.history.ended()):
            bit = 1 << tenure.slot
            reach = max((blocks for blocks, bits, _ in seen.spans if bits & bit), default=0)
            if reach:
                reaches.append((tenure.ended, tokens(reach)))
        return reaches

    # -- workers and their caches

    def worker_added(self) -> None:
        if self.history.live():  # else the router's own start
            self.replacements.came(time.time())

    def worker_changed(self, worker: str, what: str, draining: bool) -> None:
        """Note a state change (Router.note_worker_change)."""
        cause = _LOST.get(what)
        if cause is None:
            return
        now = time.time()
        if what == "removed":
            tenure = self.history.end(worker, cause, now) or self.history.drained(worker)
            self.replacements.left(tenure, now)
            self._sizes.pop(worker, None)
        else:
            if draining and cause == causes.LOST_RESTART:
                cause = causes.LOST_ROLLOUT
            self.history.end(worker, cause, now)

    def learn_block_size(self, worker: str, tokens: int) -> None:
        if tokens:
            self._sizes[worker] = tokens

    def evicted(self, worker: str, tier: Tier, names: Sequence[int | None]) -> None:
        self.evictions.add(worker, _TIER_NUMBERS[tier], names, time.time())

    def stored_in_l2(self, names: Sequence[int], at: float) -> None:
        self.stored.add(names, at, time.time())

    def cleared(self, worker: str) -> None:
        """Note a cache reset that the worker reported."""
        self.history.end(worker, causes.LOST_RESET, time.time())

    def show(self, digest: Callable[[bytes], str]) -> dict[str, Any]:
        return {
            "causes": {cause: number.value for cause, number in self._tokens.items()},
            "started": self._started,
            "slots": self.sums.show(lambda name: digest(name.to_bytes(8, "big"))),
            "unreported_requests": self._unreported.value,
            "memory": {
                "history_blocks": len(self.history),
                "evictions": len(self.evictions),
                "sketches": len(self.sketches),
            },
            "compared_prompts": self.sketches.compared,
            "comparisons_skipped": self.sketches.skipped,
        }


_TIMED: Final = frozenset(
    (
        *(causes.EVICTED_DEVICE, causes.EVICTED_L1, causes.EVICTED_L2, causes.EVICTED_UNKNOWN),
        causes.EXPIRED_L2,
        *(causes.LOST_RESTART, causes.LOST_ROLLOUT, causes.LOST_SCALE_DOWN, causes.LOST_RESET),
    )
)
_GONE: Final = frozenset((*_EVICTED, causes.EVICTED_UNKNOWN))
_CHANGED: Final = frozenset(CAUSES.values())
