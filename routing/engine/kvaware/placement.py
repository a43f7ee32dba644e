"""What `kvaware` needs around the choice itself: a request's tokens, and what became of the choice.

A request's prompt is turned into the names its blocks have in the workers' caches (tokens.service);
where that takes a moment the request waits, for a bounded time, and goes by its prefix if it was
in vain. What was chosen is remembered until the worker's events tell of it (kv.pending). What the
engine then reports as cached is held against what was predicted (kv.honesty), and its time to first
token teaches what a cached token is worth (kv.prices).

Promises that no request fails or waits longer than configured because of anything here, and that
each one which was placed without its blocks is counted by reason. Must not know sockets; the
router owns one while its strategy is kvaware.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import random
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from routing.engine.kv import hints
from routing.engine.kv.match import usable_blocks
from routing.engine.kv.progress import Progress
from routing.engine.kvaware.prediction_accuracy import Meter
from routing.engine.kvaware.ranks import HEADER, Ranks, Seat
from routing.engine.policies import base
from routing.engine.policies.kvaware import Blocks, KvAware
from routing.engine.prompt.identity import guess_path
from routing.engine.tokens import outcomes
from routing.engine.tokens.service import TokenOutcome, TokenService, TokenTicket

if TYPE_CHECKING:
    from routing.engine.exchange import Exchange
    from routing.engine.fleet.load import Charge
    from routing.engine.fleet.workers import Worker
    from routing.engine.kv.expected_blocks import Guess
    from routing.engine.kv.progress import Prompt
    from routing.engine.observe.logs import Log
    from routing.engine.policies.base import Pick
    from routing.engine.prompt.identity import Identity
    from routing.engine.tokens.segments import TokenSequence

# Why a request was placed without its blocks: what tokens.outcomes says, or one of these.
NO_EVENTS = "no_events"  # no worker tells what its cache holds
STARTING = "starting"  # the tokenizer is being loaded
STREAMED = "streamed"  # the body is too large to be held, or not JSON
# In /explain only: the tokens come in a moment, so that the same question has another answer then.
ASK_AGAIN = "ask_again"
FALLBACKS = (NO_EVENTS, STARTING, STREAMED, *outcomes.WITHOUT)
_EXPLAINED = 8
# Chosen for the log from the start on; after that as the access log is sampled.
_TOLD_AT_FIRST = 100
# vLLM 0.32 and later; others leave it unread.
_TELL = b'"vllm_xargs":{"kv_cache_report_mode":"full"}'
_TELLING_PATHS = (b"/v1/chat/completions", b"/v1/completions")


class EventFollower(Protocol):
    """Who listens to the workers' events: kv.subscriber."""

    def changed(self, worker: Worker, what: str) -> None:
        """It is "up", "lost" (its process is gone), "restarted", "reset" (its cache, by us)."""

    def partial(self, worker_id: str) -> bool:
        """Is part of its history missing, so that it holds more than we know?"""

    def rebuild(self, worker_id: str) -> None:
        """Forget what is known of this worker, and ask for all of it again."""


class Placement:
    """One request, as long as kvaware has to do with it."""

    __slots__ = ("alone", "guess", "pick", "prompt", "salt", "seat", "ticket")

    def __init__(self) -> None:
        self.ticket: TokenTicket | None = None  # waits for tokens
        self.guess: Guess | None = None
        self.seat: Seat | None = None  # its rank, where a worker has several
        self.prompt: Prompt | None = None  # while its worker computes it
        self.pick: Pick | None = None
        self.alone = False  # its worker had nothing else to do
        self.salt = ""


class KvRouting:
    def __init__(self, policy: KvAware, log: Log) -> None:
        self.policy = policy
        self.tokens: TokenService | None = None
        self.meters: dict[str, Meter] = {}
        self.ranks = Ranks(policy.index)
        self.fallbacks = dict.fromkeys(FALLBACKS, 0)
        self.bases: frozenset[str] = frozenset()  # models which are no LoRA adapters
        self.progress = Progress(policy.index)
        self.explained: dict[bytes, TokenOutcome] = {}  # by body: who asks again gets these
        self.relearn = True  # see _ask_to_tell
        self.denied = 0  # blocks of which a hint was wrong
        self.relearned = 0  # requests which were asked to tell what they found
        self.follower: EventFollower | None = None  # set by who listens
        self._log = log
        self._told = 0
        self.telling = False  # whether the events of any worker are followed
        self.log_share = 0.0  # as the access log's
        policy.believed = self._believed

    def _believed(self, worker_id: str) -> bool:
        meter = self.meters.get(worker_id)
        return meter is None or not meter.lying

    # -- before the choice

    def read(
        self,
        exchange: Exchange,
        model: str,
        data: dict[str, Any] | None,
        ready: Callable[[Exchange], None],
    ) -> bool:
        """Find the request's blocks in its parsed body. False: they are found, or will not be.
        True: it waits, and `ready` is called."""
        placing = exchange.placing = Placement()
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
            ready(exchange)

        result = self.tokens.submit(exchange.head.path, data, model, done)
        if isinstance(result, TokenOutcome):
            self._found(exchange, model, result)
            return False
        placing.ticket = result
        return True

    def _without(self, exchange: Exchange, reason: str) -> bool:
        exchange.decision.fallback = reason
        self.fallbacks[reason] += 1
        return False

    def _found(self, exchange: Exchange, model: str, outcome: TokenOutcome) -> None:
        placing = exchange.placing
        assert placing is not None
        if outcome.tokens is None:
            self._without(exchange, outcome.reason)
            return
        facts = exchange.facts
        facts.blocks = self.blocks(outcome.tokens, model, placing.salt)
        facts.tokens = outcome.tokens.count
        exchange.decision.prompt_tokens = facts.tokens

    def blocks(self, tokens: TokenSequence, model: str, salt: str) -> Blocks:
        """A prompt's blocks by name, in each size workers have."""
        index = self.policy.index
        # All workers of an endpoint serve one base model, under whatever names. Any other name is
        # an adapter's, maybe one loaded a moment ago: never must it count as the base's blocks.
        adapter = model if model and self.bases and model not in self.bases else ""
        root = index.root("", adapter, salt)
        chains = {
            size: tokens.chain(root, size)[: usable_blocks(tokens.count, size)]
            for size in index.block_sizes()
        }
        return Blocks(chains)

    # -- after the choice

    def sent(self, exchange: Exchange, pick: Pick, idle: bool) -> None:
        """It goes to the picked worker now, which has nothing else to do if `idle`."""
        placing = exchange.placing
        if placing is None:
            return
        if placing.guess is not None:  # a second try: the first worker will not have them
            self._failed(placing)
        placing.pick = pick
        placing.alone = idle
        blocks = exchange.facts.blocks
        if blocks is not None:
            chains = self._cut_as_there(pick.worker.id, blocks)
            placing.guess = self.policy.pending.sent(pick.worker.id, chains)
            if self.policy.index.several_ranks and exchange.head.get(HEADER) is None:
                self._seat(exchange, placing, pick, chains)
            self._ask_to_tell(exchange, pick, blocks)
        self._tell(exchange, pick)

    def _seat(
        self,
        exchange: Exchange,
        placing: Placement,
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

    def _failed(self, placing: Placement) -> None:
        """Its worker will not have what was guessed."""
        if placing.guess is not None:
            self.policy.pending.failed(placing.guess)
            placing.guess = None
        if placing.seat is not None:
            self.ranks.pending.failed(placing.seat.guess)
            self.ranks.leave(placing.seat)
            placing.seat = None

    def _cut_as_there(self, worker: str, blocks: Blocks) -> Mapping[int, Sequence[int]]:
        """A worker with large blocks will not have what small ones could hold of a prompt."""
        if len(blocks.chains) < 2:
            return blocks.chains
        sizes = self.policy.index.block_sizes(worker)
        return {size: names for size, names in blocks.chains.items() if size in sizes or not sizes}

    def _ask_to_tell(self, exchange: Exchange, pick: Pick, blocks: Blocks) -> None:
        """A worker tells of a block once, when it fills it. What it told before we listened, and
        can no longer repeat, it tells again of the blocks which this request finds there."""
        if not self.relearn or self.follower is None or not self.follower.partial(pick.worker.id):
            return
        known = 0 if pick.tiers is None else pick.tiers[pick.worker.id].tokens
        whole = max((len(names) * size for size, names in blocks.chains.items()), default=1)
        if known < whole and exchange.body is not None and exchange.head.path in _TELLING_PATHS:
            body = _asking_to_tell(exchange.body)
            self.relearned += body is not exchange.body
            exchange.body = body

    def charged(self, exchange: Exchange, charge: Charge) -> None:
        """What it weighs on the worker it goes to."""
        placing, blocks = exchange.placing, exchange.facts.blocks
        if placing is None or blocks is None:
            return
        self._computed(placing)  # a second try: the first worker has nothing more to do for it
        tokens = exchange.facts.tokens
        placing.prompt = self.progress.begins(charge.worker.id, blocks.chains, tokens, charge)

    def _computed(self, placing: Placement) -> None:
        if placing.prompt is not None:
            self.progress.ends(placing.prompt)
            placing.prompt = None

    def answered(self, exchange: Exchange) -> None:
        """Its first byte is here."""
        placing = exchange.placing
        if placing is not None:
            self._computed(placing)
        if placing is not None and placing.guess is not None:
            now = perf_counter()
            self.policy.pending.answered(placing.guess, now)
            if placing.seat is not None:
                self.ranks.pending.answered(placing.seat.guess, now)

    def finished(self, exchange: Exchange) -> None:
        """Its end, whatever it was."""
        placing = exchange.placing
        if placing is None:
            return
        if placing.ticket is not None:
            placing.ticket.cancel()
            placing.ticket = None
        self._computed(placing)
        if not exchange.answered:
            self._failed(placing)
        elif placing.seat is not None:
            self.ranks.leave(placing.seat)
        decision = exchange.decision
        pick = placing.pick
        if pick is None or pick.tiers is None or decision.cached_tokens is None:
            return
        self._learn(exchange, placing, pick)

    def _learn(self, exchange: Exchange, placing: Placement, pick: Pick) -> None:
        decision = exchange.decision
        worker = pick.worker.id
        reported = decision.cached_tokens or 0
        assert pick.tiers is not None
        held = pick.tiers[worker]
        if decision.ttft_s is not None and placing.alone and not decision.queued_s:
            tiers = (held.gpu, held.l1, held.l2)
            self.policy.prices.learn(decision.prompt_tokens, reported, tiers, decision.ttft_s)
        if pick.guessed:
            return  # what is on its way may well be computed twice: nobody lied
        meter = self.meters.get(worker)
        if meter is None:
            meter = self.meters[worker] = Meter()
        block = max(self.policy.index.block_sizes(worker), default=1)
        # What storage was said to have is a hint: when it is gone, nobody lied.
        own = held.gpu + held.l1
        if held.l2 and reported + block < held.tokens and exchange.facts.blocks is not None:
            for size, names in exchange.facts.blocks.chains.items():
                there = names[max(reported, own) // size :]
                self.denied += hints.denied(self.policy.index, worker, there)
        if meter.observe(min(max(reported, own), held.tokens), reported, block):
            if not meter.lying and self.follower is not None and self.follower.partial(worker):
                return  # more than we know, and building anew would not find it either
            self._log.event(
                "warning",
                "kv_index_not_believed",
                worker=worker,
                promised_and_missing=round(meter.over, 2),
                reported_and_unforeseen=round(meter.under, 2),
                remedy="its index is built anew from its events",
            )
            if self.follower is not None:
                self.follower.rebuild(worker)

    def remember(self, body: bytes, outcome: TokenOutcome) -> None:
        """An answer to /explain which came too late for it."""
        self.explained[body] = outcome
        while len(self.explained) > _EXPLAINED:
            del self.explained[next(iter(self.explained))]

    def forget(self, worker_id: str) -> None:
        """The worker is gone."""
        self.meters.pop(worker_id, None)
        self.ranks.forget(worker_id)

    def rebuilt(self, worker_id: str) -> None:
        """The worker's index is whole again."""
        meter = self.meters.get(worker_id)
        if meter is not None and meter.lying:
            meter.renewed()

    def tick(self, now: float) -> None:
        self.policy.pending.tick(now)
        self.ranks.pending.tick(now)

    # -- for people

    def _tell(self, exchange: Exchange, pick: Pick) -> None:
        """The lines by which the reference's operators check that this strategy is at work."""
        if self._told >= _TOLD_AT_FIRST and random() >= self.log_share:
            return
        self._told += 1
        facts: dict[str, Any] = {
            "request_id": exchange.decision.request_id,
            "worker": pick.worker.id,
            "matched_tokens": pick.cached_tokens,
        }
        if pick.reason == base.KV_HIT:
            text = f"Routing request to {pick.worker.id} found by kvaware router"
        else:
            facts["reason"] = pick.reason
            facts["fallback"] = exchange.decision.fallback
            text = "Matched instance None"
        self._log.later(text, facts)

    def show(self) -> dict[str, Any]:
        """For /index."""
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
                    "demotions": meter.demotions,
                }
                for worker, meter in self.meters.items()
            },
        }


def explain_blocks(routing: KvRouting, body: bytes, identity: Identity) -> str:
    """Give `facts` the blocks, if they can be had without waiting; changes and counts nothing
    else. Returns why there are none, "" where there are."""
    if not routing.telling:
        return NO_EVENTS
    if routing.tokens is None:
        return STARTING
    facts, data = identity.facts, identity.data
    if data is None:
        return STREAMED
    found = routing.explained.pop(body, None)
    if found is None:
        asked = routing.tokens.submit(
            guess_path(data),
            data,
            identity.model,
            lambda outcome: routing.remember(body, outcome),
            counted=False,
        )
        if isinstance(asked, TokenTicket):
            return ASK_AGAIN
        found = asked
    if found.tokens is None:
        return found.reason
    salt = data.get("cache_salt")
    facts.blocks = routing.blocks(found.tokens, identity.model, salt if type(salt) is str else "")
    facts.tokens = found.tokens.count
    return ""


def _asking_to_tell(body: bytes) -> bytes:
    """The same object with one field more; unless the caller has a word to say about it."""
    if b"vllm_xargs" in body:
        return body
    end = body.rfind(b"}")
    if end < 0 or body[:end].rstrip()[-1:] == b"{":
        return body
    return b"%b,%b%b" % (body[:end], _TELL, body[end:])
