"""`kvaware` around the choice of a worker: prompt tokens, expected blocks, feedback.

A request waits for its tokens up to a limit, then is placed by prefix. The cached count reported by
the engine is compared with the prediction; TTFT updates the load prices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import random
from time import perf_counter
from typing import TYPE_CHECKING, Any

from routing.engine.kv.index import remove_hints
from routing.engine.kv.match import Blocks, usable_blocks
from routing.engine.kv.progress import Progress
from routing.engine.kvaware.prediction_accuracy import PredictionAccuracy
from routing.engine.kvaware.ranks import HEADER, Ranks
from routing.engine.kvaware.request_state import (
    ASK_AGAIN,
    FALLBACKS,
    NO_EVENTS,
    STARTING,
    STREAMED,
    EventFollower,
    RequestPlacement,
)
from routing.engine.policies import base
from routing.engine.policies.kvaware import KvAware
from routing.engine.prompt.identity import guess_path
from routing.engine.tokens.service import TokenOutcome, TokenService, TokenTicket

if TYPE_CHECKING:
    from routing.engine.fleet.load import RequestCharge
    from routing.engine.observe.logs import Log
    from routing.engine.policies.base import Pick
    from routing.engine.prompt.identity import Identity
    from routing.engine.protocols import PeerRecorder
    from routing.engine.request import RoutedRequest
    from routing.engine.tokens.segments import TokenSequence

_KEPT_EXPLANATIONS = 8
# Always logged at first, then sampled like the access log.
_LOGGED_AT_FIRST = 100
# vLLM 0.32 and later; ignored by others.
_REPORT_FIELD = b'"vllm_xargs":{"kv_cache_report_mode":"full"}'
_REPORTING_PATHS = (b"/v1/chat/completions", b"/v1/completions")


class KvRouting:
    def __init__(self, policy: KvAware, log: Log) -> None:
        self.policy = policy
        self.tokens: TokenService | None = None
        self.meters: dict[str, PredictionAccuracy] = {}
        self.ranks = Ranks(policy.index)
        self.fallbacks = dict.fromkeys(FALLBACKS, 0)
        self.bases: frozenset[str] = frozenset()  # base models (no LoRA adapters)
        self.stated_sizes: frozenset[int] = frozenset()  # of blocks, by the workers' metrics
        self.progress = Progress(policy.index)
        self.explained: dict[bytes, TokenOutcome] = {}  # by body, for repeated /explain queries
        self.relearn = True  # see _request_relearn
        self.denied = 0
        self.relearned = 0  # requests that requested block events again
        self.follower: EventFollower | None = None
        self.peers: PeerRecorder | None = None
        self._log = log
        self._decisions_logged = 0
        self.telling = False  # any worker's events are followed
        self.log_share = 0.0  # sampling share of the log
        policy.believed = self._believed

    def _believed(self, worker_id: str) -> bool:
        meter = self.meters.get(worker_id)
        return meter is None or not meter.lying

    def read(
        self,
        exchange: RoutedRequest,
        model: str,
        data: dict[str, Any] | None,
        ready: Callable[[], None],
    ) -> bool:
        """Look up the blocks of a parsed body. Return True if the request waits; `ready` is called
        later.
        """
        placing = exchange.placing = RequestPlacement()
        if not self.telling:
            return self._without(exchange, NO_EVENTS)
        if self.tokens is None:
            return self._without(exchange, STARTING)
        if data is None:
            return self._without(exchange, STREAMED)
        salt = data.get("cache_salt")
        placing.salt = salt if type(salt) is str else ""

        def done(outcome: TokenOutcome) -> None:
            placing.ticket = None
            self._found(exchange, model, outcome)
            ready()

        result = self.tokens.submit(exchange.head.path, data, model, done)
        if isinstance(result, TokenOutcome):
            self._found(exchange, model, result)
            return False
        placing.ticket = result
        return True

    def _without(self, exchange: RoutedRequest, reason: str) -> bool:
        exchange.decision.fallback = reason
        return False

    def _found(self, exchange: RoutedRequest, model: str, outcome: TokenOutcome) -> None:
        placing = exchange.placing
        assert placing is not None
        if outcome.tokens is None:
            self._without(exchange, outcome.reason)
            return
        features = exchange.facts
        features.blocks = self.blocks(outcome.tokens, model, placing.salt)
        features.tokens = outcome.tokens.count
        exchange.decision.prompt_tokens = features.tokens

    def blocks(self, tokens: TokenSequence, model: str, salt: str) -> Blocks:
        index = self.policy.index
        # The workers of an endpoint serve one base model under any name. Another name is an
        # adapter, possibly just loaded, and must not match the base's blocks.
        adapter = model if model and self.bases and model not in self.bases else ""
        root = index.root("", adapter, salt)
        chains = {
            size: tokens.chain(root, size)[: usable_blocks(tokens.count, size)]
            for size in index.block_sizes() or self.stated_sizes
        }
        return Blocks(chains)

    def sent(self, exchange: RoutedRequest, pick: Pick, idle: bool) -> None:
        placing = exchange.placing
        if placing is None:
            return
        if placing.guess is not None:  # retry: drop the first worker's expectation
            self._failed(placing)
        if placing.pick is None and exchange.decision.fallback:
            # A request that no worker could take, as during a pause, was not placed at all.
            self.fallbacks[exchange.decision.fallback] += 1
        placing.pick = pick
        placing.alone = idle
        blocks = exchange.facts.blocks
        if blocks is not None:
            chains = self._cut_as_there(pick.worker.id, blocks)
            placing.reported = _reported_tokens(pick)
            placing.guess = self.policy.pending.sent(pick.worker.id, chains, placing.reported)
            if self.policy.index.several_ranks and exchange.head.get(HEADER) is None:
                self._seat(exchange, placing, pick, chains)
            self._request_relearn(exchange, pick, blocks)
        self._log_decision(exchange, pick)

    def _seat(
        self,
        exchange: RoutedRequest,
        placing: RequestPlacement,
        pick: Pick,
        chains: Mapping[int, Sequence[int]],
    ) -> None:
        worker = pick.worker.id
        seat = placing.seat = self.ranks.choose(worker, chains, exchange.facts.tokens)
        if seat is None or pick.tiers is None:
            return
        pick.tiers = exchange.decision.tiers = {**pick.tiers, worker: seat.match}
        pick.guessed = seat.guessed
        pick.cached_tokens = exchange.decision.predicted = seat.match.tokens

    def _failed(self, placing: RequestPlacement) -> None:
        """Drop the expected blocks of a failed attempt."""
        if placing.guess is not None:
            self.policy.pending.failed(placing.guess)
            if self.peers is not None:
                self.peers.failed(placing.guess)
            placing.guess = None
        if placing.seat is not None:
            self.ranks.pending.failed(placing.seat.guess)
            self.ranks.leave(placing.seat)
            placing.seat = None

    def _cut_as_there(self, worker: str, blocks: Blocks) -> Mapping[int, Sequence[int]]:
        """Drop blocks beyond the worker's block size, which may be larger."""
        if len(blocks.chains) < 2:
            return blocks.chains
        sizes = self.policy.index.block_sizes(worker)
        return {size: names for size, names in blocks.chains.items() if size in sizes or not sizes}

    def _request_relearn(self, exchange: RoutedRequest, pick: Pick, blocks: Blocks) -> None:
        """Request block events again.

        A worker reports a block once, when it is filled. Events from before the subscription are
        repeated for blocks this request hits.
        """
        if not self.relearn or self.follower is None or not self.follower.partial(pick.worker.id):
            return
        tokens_known = 0 if pick.tiers is None else pick.tiers[pick.worker.id].tokens
        whole = max((len(names) * size for size, names in blocks.chains.items()), default=1)
        if (
            tokens_known < whole
            and exchange.body is not None
            and exchange.head.path in _REPORTING_PATHS
        ):
            body = _request_block_events(exchange.body)
            self.relearned += body is not exchange.body
            exchange.body = body

    def charged(self, exchange: RoutedRequest, charge: RequestCharge) -> None:
        placing, blocks = exchange.placing, exchange.facts.blocks
        if placing is None or blocks is None:
            return
        self._computed(placing)  # retry: the first worker has no work left
        tokens = exchange.facts.tokens
        placing.prompt = self.progress.begins(
            charge.worker.id, blocks.chains, tokens, charge, placing.reported
        )

    def _computed(self, placing: RequestPlacement) -> None:
        if placing.prompt is not None:
            self.progress.ends(placing.prompt)
            placing.prompt = None

    def answered(self, exchange: RoutedRequest) -> None:
        placing = exchange.placing
        if placing is not None:
            self._computed(placing)
        if placing is not None and placing.guess is not None:
            now = perf_counter()
            self.policy.pending.answered(placing.guess, now)
            if self.peers is not None:
                self.peers.answered(placing.guess)
            if placing.seat is not None:
                self.ranks.pending.answered(placing.seat.guess, now)

    def ended(self, exchange: RoutedRequest) -> None:
        placing = exchange.placing
        if placing is None:
            return
        if placing.ticket is not None:
            placing.ticket.cancel()
            placing.ticket = None
        self._computed(placing)
        if not exchange.answered or 400 <= (exchange.decision.status or 0) < 499:
            self._failed(placing)  # nothing was computed
        elif placing.seat is not None:
            self.ranks.leave(placing.seat)
        decision = exchange.decision
        pick = placing.pick_of(decision.chosen)
        if pick is None or pick.tiers is None or decision.cached_tokens is None:
            return
        if exchange.ask.skips_cache:
            return  # its engine computed all of it, whatever it had cached
        self._learn(exchange, placing, pick)

    def _learn(self, exchange: RoutedRequest, placing: RequestPlacement, pick: Pick) -> None:
        decision = exchange.decision
        worker = pick.worker.id
        reported = decision.cached_tokens or 0
        assert pick.tiers is not None
        held = pick.tiers[worker]
        if decision.ttft_s is not None and placing.alone and not decision.queued_s:
            tiers = (held.gpu, held.l1, held.l2)
            self.policy.prices.learn(decision.prompt_tokens, reported, tiers, decision.ttft_s)
        if pick.guessed:
            return  # the expected blocks may be recomputed: no misprediction
        meter = self.meters.get(worker)
        if meter is None:
            meter = self.meters[worker] = PredictionAccuracy()
        block = max(self.policy.index.block_sizes(worker), default=1)
        # Missing storage blocks are wrong hints, not mispredictions.
        own = held.gpu + held.l1
        if held.l2 and reported + block < held.tokens and exchange.facts.blocks is not None:
            for size, names in exchange.facts.blocks.chains.items():
                there = names[max(reported, own) // size :]
                self.denied += remove_hints(self.policy.index, worker, there)
        doubted = meter.doubted
        rebuild = meter.observe(min(max(reported, own), held.tokens), reported, block)
        if meter.doubted != doubted:
            self._note_doubt(worker, meter.doubted)
        if rebuild:
            if not meter.lying and self.follower is not None and self.follower.partial(worker):
                return  # a rebuild would not find more
            self._log.event(
                "warning",
                "kv_index_not_believed",
                worker=worker,
                promised_and_missing=round(meter.over, 2),
                reported_and_unforeseen=round(meter.under, 2),
                remedy="none: rebuilding its index from its events",
            )
            if self.follower is not None:
                self.follower.rebuild(worker)

    def _note_doubt(self, worker: str, doubted: bool) -> None:
        """Place by prompts sent while a worker caches other tokens than are predicted of it."""
        if doubted:
            self.policy.doubted.add(worker)
        else:
            self.policy.doubted.discard(worker)
        self._log.event(
            "warning" if doubted else "info",
            "kv_tokens_differ" if doubted else "kv_tokens_agree",
            worker=worker,
            effect="placed by prefix until predictions agree" if doubted else "placed by KV events",
        )

    def remember(self, body: bytes, outcome: TokenOutcome) -> None:
        """Keep a late outcome for the next /explain query."""
        self.explained[body] = outcome
        while len(self.explained) > _KEPT_EXPLANATIONS:
            del self.explained[next(iter(self.explained))]

    def forget(self, worker_id: str) -> None:
        self.meters.pop(worker_id, None)
        self.policy.doubted.discard(worker_id)
        self.ranks.forget(worker_id)

    def rebuilt(self, worker_id: str) -> None:
        meter = self.meters.get(worker_id)
        if meter is not None and meter.lying:
            meter.renewed()

    def tick(self, now: float) -> None:
        self.policy.pending.tick(now)
        self.ranks.pending.tick(now)

    def _log_decision(self, exchange: RoutedRequest, pick: Pick) -> None:
        """Log a placement (sampled), to verify the strategy in operation."""
        if self._decisions_logged >= _LOGGED_AT_FIRST and random() >= self.log_share:
            return
        self._decisions_logged += 1
        record: dict[str, Any] = {
            "request_id": exchange.decision.request_id,
            "worker": pick.worker.id,
            "matched_tokens": pick.cached_tokens,
        }
        if pick.reason == base.KV_HIT:
            text = f"Routing request to {pick.worker.id} found by kvaware router"
        else:
            record["reason"] = pick.reason
            record["fallback"] = exchange.decision.fallback
            text = "Matched instance None"
        self._log.later(text, record)

    def show(self) -> dict[str, Any]:
        service = self.tokens
        return {
            "telling": self.telling,
            "blocks": len(self.policy.index),
            "block_sizes": sorted(self.policy.index.block_sizes()),
            "pending_blocks": len(self.policy.pending),
            "prices": self.policy.prices.show(),
            "relearned": self.relearned,
            "denied_blocks": self.denied,
            "fallbacks": {reason: count for reason, count in self.fallbacks.items() if count},
            "tokens": None
            if service is None
            else {
                "trust": service.trust,
                "waiting": service.waiting,
                "outcomes": {name: count for name, count in service.counts.items() if count},
                "check_failures": service.check_failures,
            },
            "honesty": {
                worker: {
                    "answers": meter.answers,
                    "promised_and_missing": round(meter.over, 3),
                    "reported_and_unforeseen": round(meter.under, 3),
                    "believed": not meter.lying,
                    "tokens_differ": meter.doubted,
                    "demotions": meter.demotions,
                }
                for worker, meter in self.meters.items()
            },
        }


def _reported_tokens(pick: Pick) -> int:
    """Return how much of the prompt events reported on the worker's device."""
    if pick.tiers is None or pick.guessed:
        return 0
    return pick.tiers[pick.worker.id].gpu


def explain_blocks(routing: KvRouting, body: bytes, identity: Identity) -> str:
    """Set `facts.blocks` if available without waiting; no other effects. Return the reason if not,
    else "".
    """
    if not routing.telling:
        return NO_EVENTS
    if routing.tokens is None:
        return STARTING
    features, data = identity.facts, identity.data
    if data is None:
        return STREAMED
    explained = routing.explained.pop(body, None)
    if explained is None:
        submitted = routing.tokens.submit(
            guess_path(data),
            data,
            identity.model,
            lambda outcome: routing.remember(body, outcome),
            counted=False,
        )
        if isinstance(submitted, TokenTicket):
            return ASK_AGAIN
        explained = submitted
    if explained.tokens is None:
        return explained.reason
    salt = data.get("cache_salt")
    features.blocks = routing.blocks(
        explained.tokens, identity.model, salt if type(salt) is str else ""
    )
    features.tokens = explained.tokens.count
    return ""


def _request_block_events(body: bytes) -> bytes:
    """Return the body with the event request field, unless the caller set it."""
    if b"vllm_xargs" in body:
        return body
    end = body.rfind(b"}")
    if end < 0 or body[:end].rstrip()[-1:] == b"{":
        return body
    return b"%b,%b%b" % (body[:end], _REPORT_FIELD, body[end:])
