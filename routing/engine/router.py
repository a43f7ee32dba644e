"""Request routing: active configuration, workers, policy, keys, and the dispatch of requests.

A new configuration is applied atomically between requests; in-flight requests keep theirs.
"""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
import time
from time import perf_counter
from typing import TYPE_CHECKING

import orjson

from routing.engine import policies
from routing.engine.access.admission import RequestAdmission
from routing.engine.access.keys import KeyRing, check_model
from routing.engine.access.paths import Paths
from routing.engine.config import Config, Key, SessionKey
from routing.engine.errors import Refusal
from routing.engine.exchange import Exchange
from routing.engine.fleet.roster import Roster
from routing.engine.fleet.workers import Table, Worker
from routing.engine.http.bodies import Budget, is_small
from routing.engine.http.http1 import RequestHead
from routing.engine.kvaware.placement import KvRouting
from routing.engine.observe.decisions import Decision, Ring
from routing.engine.observe.logs import Log
from routing.engine.observe.metrics import Metrics, ModelMetrics, StrategyMetrics
from routing.engine.policies import base
from routing.engine.policies.base import Fleet, Pick, RoutingPolicy
from routing.engine.policies.kvaware import KvAware
from routing.engine.prompt.engine_request import EngineRequest
from routing.engine.prompt.identity import Identifier, Identity, session_of
from routing.engine.recorder import Recorder
from routing.engine.token_ledger import Meter
from routing.engine.tokens.usage import Ratios

if TYPE_CHECKING:
    from routing.engine.client_connection import ClientConnection

# Retry budget for requests that a worker had begun: 20 % of requests, burst of 100. Refused
# connections are free.
RETRY_SHARE = 0.2
RETRY_BURST = 100.0
# Fields that take effect only after a restart.
NEED_RESTART = ("listen", "listen_more", "admin", "endpoint", "namespace")
_HEALTH_PATHS = (b"/health", b"/ping")
_MODELS_PATH = b"/v1/models"
_RESET_PATHS = (b"/reset_prefix_cache", b"/sleep")  # they empty a worker's cache


class Router:
    def __init__(self, config: Config, log: Log) -> None:
        self.log = log
        self.config = config
        self.closing = False  # stopping: answers close their connections
        self.draining = False  # not ready, but still serving
        self.clients: set[ClientConnection] = set()
        self.metrics = Metrics(config.namespace, config.endpoint)
        self.table = Table(self._worker_changed)
        self.roster = Roster(self)
        self.ring = Ring(config.decisions_keep)
        self.keys = KeyRing(config.keys)
        self.budget = Budget(config.limits.buffer_bytes)
        self._reading = asyncio.Lock()  # one large body at a time
        self.admission = RequestAdmission(self._has_room, self.metrics.queue_duration)
        self.config_error = ""
        self.config_ignored: list[str] = []  # changed fields that need a restart
        self.config_time = 0.0
        self.ratios = Ratios()
        self._own_secret = secrets.token_bytes(32)
        self._boot = secrets.token_hex(4)
        self._count = 0
        self._decided = 0
        self._picks = 0
        self._retry_budget = RETRY_BURST
        self._strategy: StrategyMetrics
        self.policy: RoutingPolicy
        self.recorder = Recorder(log, self.metrics, self._boot)
        self.meter = Meter(self.recorder.use, self.metrics, self.ratios)
        self.kv: KvRouting | None = None  # set while the strategy is kvaware
        self._take_over(config)
        self.metrics.registry.before_render.append(self._refresh_gauges)

    def reconfigure(self, config: Config) -> None:
        """Apply a new configuration."""
        before = self.config
        fixed = {name: getattr(before, name) for name in NEED_RESTART}
        ignored = [name for name, value in fixed.items() if getattr(config, name) != value]
        if ignored:
            self.log.event("warning", "config_needs_restart", fields=ignored)
            config = dataclasses.replace(config, **fixed)
        self.config_ignored = ignored
        kept = before.strategy == config.strategy
        for name in ("prefix_block_bytes", "prefix_memory_blocks", "hash_key"):
            kept = kept and getattr(before, name) == getattr(config, name)
        self._take_over(config, keep_policy=kept)

    def _take_over(self, config: Config, keep_policy: bool = False) -> None:
        self.roster.renew_tls(config)  # first: this and the next line can fail
        self.recorder.prepare(config)
        self.config = config
        self.keys = KeyRing(config.keys)
        self._paths = Paths(config.open_paths)
        if config.decisions_keep != self.ring.keep:
            self.ring = self.ring.resized(config.decisions_keep)
        if not keep_policy:
            self.policy = policies.build(config, config.hash_key or self._own_secret)
            self.kv = KvRouting(self.policy, self.log) if isinstance(self.policy, KvAware) else None
            self._tell_models()
            self.table.by_turn = self.policy.by_turn
            self._strategy = self.metrics.strategy(self.policy.name)
        session_key: SessionKey | None = config.session_key if self.policy.needs_session else None
        self._session_key = session_key
        self.identifier = Identifier(
            config.hash_key,
            config.prefix_block_bytes,
            session_key,
            config.hash_key or self._own_secret,
            self.ratios,
            config.limits,
        )
        self.budget.limit = config.limits.buffer_bytes
        self.recorder.configure(config, self.identifier)
        self.meter.configure(config, self.identifier)
        self.metrics.know_model(config.model)
        self.roster.take_over(config)
        limited = config.admission
        capped = limited.worker_max_in_flight > 0 or any(w.max_in_flight for w in config.workers)
        self._capped = capped
        self.admission.configure(limited, self.keys, config.keys, capped)
        self.config_error = ""
        self.config_time = time.time()
        self.metrics.reload_time.value = self.config_time

    def tell_kv(self, worker: Worker, what: str) -> None:
        """Notify the KV event follower of a worker's state change."""
        if self.kv is not None and self.kv.follower is not None:
            self.kv.follower.changed(worker, what)

    def _worker_changed(self, worker: Worker, what: str) -> None:
        level = "info" if what in ("up", "trial", "back") else "warning"
        self.log.event(level, f"worker_{what}", worker=worker.id, error=worker.last_error)
        if what in ("lost", "engine_died"):
            self.policy.forget(worker)  # process and cache are gone
            worker.fingerprint = None
        elif what == "up":
            self.roster.set_capacity(worker)  # `forget` dropped the capacity
        self.tell_kv(worker, "reset" if what == "engine_died" else what)
        if self.admission.depth:
            self.admission.pump()

    def worker_failed(self, worker: Worker | None, error: str, refused: bool) -> None:
        assert worker is not None
        self.table.failed(worker, error, refused)

    def engine_died(self, worker: Worker) -> None:
        self.table.engine_died(worker, "its engine died")

    def learn_models(self) -> None:
        """Update model labels and /v1/models from the workers."""
        for worker in self.table.workers.values():
            for model in worker.models:
                self.metrics.know_model(str(model.get("id", "")))
                self.meter.learn_context(model.get("max_model_len"))
        self._tell_models()

    def _tell_models(self) -> None:
        if self.kv is not None:
            models = (model for worker in self.table.workers.values() for model in worker.models)
            bases = {str(model.get("id")) for model in models if not model.get("parent")}
            self.kv.bases = frozenset(bases)

    def _refresh_gauges(self) -> None:
        sizes = self.policy.sizes()
        metrics = self.metrics
        metrics.queue_depth.value = self.admission.depth
        metrics.queue_limit.value = self.admission.limit
        metrics.request_buffer.value = self.budget.used
        for worker in self.table.workers.values():
            metrics.in_flight.child(worker.id).value = worker.in_flight
            metrics.worker_up.child(worker.id).value = int(worker.up)
            metrics.circuit.child(worker.id).value = worker.circuit.state
            metrics.cache_tokens.child(worker.id).value = worker.cache_tokens
            metrics.index_blocks.child(worker.id).value = sizes.get(worker.id, 0)

    def name_request(self, head: RequestHead) -> None:
        self._count += 1
        if not head.request_id:
            head.request_id = b"%b-%x" % (self._boot.encode(), self._count)

    def admit(self, head: RequestHead) -> Key:
        """Authenticate and authorize before the body is read. Raise Refusal."""
        if head.path in _HEALTH_PATHS:
            return Key("", "")
        key = self.keys.check(head.authorization)
        if not key.admin and self._paths.needs_admin(head.path):
            raise Refusal("path_not_allowed", "This path is for keys with admin rights only.")
        if head.length > self.config.limits.body_bytes:
            limit = self.config.limits.body_bytes
            raise Refusal("body_too_large", f"The body is larger than {limit} bytes.")
        if head.pin:
            if not key.pin:
                raise Refusal("pin_not_allowed", "This key may not choose a worker.")
            if head.pin.decode("latin-1") not in self.table.workers:
                raise Refusal("unknown_worker", "x-emberline-pin names no worker of this endpoint.")
        return key

    def refused(self, refusal: Refusal) -> None:
        self.metrics.error(refusal.kind.reason)
        self.metrics.count(self.metrics.other, refusal.kind.status)

    def handle(
        self,
        client: ClientConnection,
        head: RequestHead,
        key: Key,
        body: bytes | None,
        seen: bytes,
    ) -> None:
        """Answer locally or dispatch; `body` None: the body is streamed, `seen` is its buffered
        part.
        """
        path = head.path
        if path in _HEALTH_PATHS or (path == _MODELS_PATH and head.method in (b"GET", b"HEAD")):
            status, answer = self._local(path, key)
            self.metrics.count(self.metrics.other, status)
            client.reply(status, answer, head)
            return
        started = perf_counter()
        ask = EngineRequest(head.path)
        scope = self.meter.scope_there(key, ask.path)
        identity: Identity | None = None
        problem: Refusal | None = None
        try:
            if self.admission.active and not self._paths.needs_admin(path):
                self.admission.check(key, len(body or b""), may_wait=not head.pin)
            identity = self._identify(head, key, body, seen, scope)
        except Refusal as refusal:
            problem = refusal
        found = identity or self.identifier.scan(seen, b"")
        model = self.metrics.model(found.model)
        self._decided += 1
        decision = Decision(f"{self._boot}-d{self._decided:x}", time.time(), self.policy.name)
        decision.request_id = head.request_id.decode("latin-1")
        decision.key_id = key.id
        exchange = Exchange(self, client, head, body, found.facts, model, decision, ask, started)
        decision.note(found.facts, model.name)
        self.ring.add(decision)
        client.begin(exchange)
        if self.recorder.traces:
            exchange.trace = self.recorder.trace(head)
        self._retry_budget = min(self._retry_budget + RETRY_SHARE, RETRY_BURST)
        if problem is not None:
            exchange.refuse(problem)
        elif identity is None:
            reading = self._read_large(exchange, key, scope, started)
            exchange.reading = asyncio.get_running_loop().create_task(reading)
        else:
            self._place(exchange, key, identity, started)

    async def _read_large(self, exchange: Exchange, key: Key, scope: str, began: float) -> None:
        body = exchange.body
        assert body is not None
        try:
            identity = await self.read_body(exchange.head, body, scope=scope)
        except Refusal as refusal:
            exchange.reading = None
            exchange.refuse(refusal)
            return
        except Exception as error:  # noqa: BLE001 - nobody awaits this task: its client would hang
            exchange.reading = None
            self.log.event("error", "request_unreadable", error=repr(error))
            exchange.refuse(Refusal("internal_error", "The router could not read this request."))
            return
        exchange.reading = None
        exchange.facts = identity.facts
        exchange.model = self.metrics.model(identity.model)
        exchange.decision.note(identity.facts, exchange.model.name)
        self._place(exchange, key, identity, began)

    async def read_body(
        self, head: RequestHead, body: bytes, path: bytes | None = None, scope: str = ""
    ) -> Identity:
        """Parse a body of any size; serialized, because each takes much memory."""
        async with self._reading:
            path = head.path if path is None else path
            session = session_of(head, self._session_key)
            needs_chain = self.policy.needs_chain
            return await self.identifier.read_large(path, body, session, needs_chain, scope)

    def _place(self, exchange: Exchange, key: Key, identity: Identity, began: float) -> None:
        """Dispatch a request whose body was parsed."""
        try:
            if key.models is not None:
                check_model(key.models, exchange.body, identity.data)
            exchange.body = self.meter.prepare(exchange, identity, key)
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        if self.kv is not None and exchange.body is not None:
            waits = self.kv.read(
                exchange, identity.model, identity.sent, lambda it: self._enter(it, key, began)
            )
            if waits:
                return
        self._enter(exchange, key, began)

    def _enter(self, exchange: Exchange, key: Key, began: float) -> None:
        try:
            self.meter.admit(exchange, key, free=self._paths.needs_admin(exchange.head.path))
            if self.admission.active and not self._admitted(exchange, key):
                return
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        self._dispatch(exchange, began)

    def _admitted(self, exchange: Exchange, key: Key) -> bool:
        """Return True if admitted, False if queued. Raise Refusal."""
        head = exchange.head
        if self._paths.needs_admin(head.path):
            return True  # control requests do not queue
        held = len(exchange.body or b"")
        return self.admission.enter(exchange, key, exchange.facts, held, may_wait=not head.pin)

    def _has_room(self) -> bool:
        """Return True if a worker has a free slot, or if none is up."""
        eligible = self.table.eligible
        if not self._capped or not eligible:
            return True
        return any(worker.in_flight < worker.max_in_flight for worker in eligible)

    def take_turn(self, exchange: Exchange, waited_s: float) -> None:
        """Dispatch a request that was queued."""
        exchange.decision.queued_s = waited_s
        self._dispatch(exchange, perf_counter())

    def _dispatch(self, exchange: Exchange, began: float) -> None:
        try:
            pick = self._pinned(exchange) if exchange.head.pin else self._pick(exchange)
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        self._send(exchange, pick)
        self._strategy.overhead.observe(perf_counter() - began)

    def _identify(
        self, head: RequestHead, key: Key, body: bytes | None, seen: bytes, scope: str
    ) -> Identity | None:
        """Return None for a body that takes long to parse (see `read_body`). Raise Refusal."""
        session = session_of(head, self._session_key)
        needs_chain = self.policy.needs_chain
        if body is None or not (
            self.identifier.reads(needs_chain)
            or key.models is not None
            or self.meter.reads(key, scope, body)
        ):
            return self.identifier.scan(seen, session)
        if not is_small(body):
            return None
        return self.identifier.read(head.path, body, session, needs_chain, scope)

    def _pick(self, exchange: Exchange) -> Pick:
        fleet = self.table.fleet
        if exchange.tried:
            fleet = fleet.without(exchange.tried)
        if not fleet.eligible:
            raise Refusal("no_healthy_worker", "No worker can take this request now.")
        if self._capped:
            full = [w for w in self.table.eligible if w.in_flight >= w.max_in_flight]
            if full:  # a retry may exceed the limit
                roomy = fleet.without(full)
                fleet = roomy if roomy.eligible else fleet
        before = perf_counter()
        pick = self.policy.rank(exchange.facts, fleet)
        self._strategy.lookup.observe(perf_counter() - before)
        if exchange.tried:
            pick.reason = base.RETRY
        return pick

    def _pinned(self, exchange: Exchange) -> Pick:
        worker = self.table.workers.get(exchange.head.pin.decode("latin-1"))
        if worker is None:
            raise Refusal("unknown_worker", "x-emberline-pin names no worker of this endpoint.")
        if not worker.up:
            raise Refusal("no_healthy_worker", "The pinned worker is down.")
        exchange.pinned = True
        others = [other for other in self.table.workers.values() if other is not worker]
        pick = self.policy.rank(exchange.facts, Fleet((worker,), others))
        pick.reason = base.PINNED
        return pick

    def _send(self, exchange: Exchange, pick: Pick) -> None:
        worker = self.table.workers[pick.worker.id]
        facts = exchange.facts
        decision = exchange.decision
        decision.candidates = pick.candidates
        decision.compared = pick.total
        decision.chosen = worker.id
        decision.reason = pick.reason
        decision.tiers = pick.tiers
        decision.predicted = pick.cached_tokens
        worker.decisions[pick.reason].value += 1
        self._picks += 1
        worker.last_pick = self._picks
        if facts.tokens:
            self._strategy.match_ratio.observe(pick.cached_tokens / facts.tokens)
        self.policy.sent(facts, worker)
        if self.kv is not None:
            self.kv.sent(exchange, pick, idle=not worker.in_flight)
        if worker.circuit.state:
            self.table.sent(worker)
        exchange.send_to(worker, facts.tokens - pick.cached_tokens)

    def send_again(self, exchange: Exchange) -> None:
        """Retry on another worker."""
        try:
            pick = self._pick(exchange)
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        self._send(exchange, pick)

    def retry_allowed(self, exchange: Exchange, free: bool) -> bool:
        """Return True if another worker and the retry budget allow a retry; charges the budget."""
        if all(worker in exchange.tried for worker in self.table.eligible):
            return False
        if free:
            return True
        if self._retry_budget < 1:
            return False
        self._retry_budget -= 1
        return True

    def finished(self, exchange: Exchange) -> None:
        """Record a request's end."""
        decision = exchange.decision
        model: ModelMetrics = exchange.model
        status = decision.status or 0
        self.metrics.count(model, status)
        duration = decision.duration_s or 0.0
        model.duration.observe(duration)
        if decision.ttft_s is not None:
            model.ttft[exchange.cache_state()].observe(decision.ttft_s)
        if decision.error:
            self.metrics.error(decision.error)
        self.recorder.ended(exchange)
        if self.kv is not None:
            if exchange.placing is not None:
                self.kv.finished(exchange)
            if exchange.head.path in _RESET_PATHS and status == 200:
                self._was_reset(decision.chosen, exchange.answer_end())
        if exchange.ticket is not None:
            # Last, since it may dispatch the next request.
            self.admission.done(exchange.ticket, *decision.used())

    def _was_reset(self, worker_id: str, answer: bytes) -> None:
        """Treat a successful reset as a cache loss now; the worker's event comes with its next
        step. vLLM answers 200 with false while requests hold blocks.
        """
        worker = self.table.workers.get(worker_id)
        if worker is not None and b"false" not in answer:
            self.tell_kv(worker, "reset")

    def _local(self, path: bytes, key: Key) -> tuple[int, bytes]:
        if path in _HEALTH_PATHS:
            return (200 if self.table.eligible else 503), b""
        models: dict[str, object] = {}
        for worker in self.table.workers.values():
            for model in worker.models:
                models.setdefault(str(model.get("id")), model)
        if not models and self.config.model:
            models[self.config.model] = {
                "id": self.config.model,
                "object": "model",
                "created": int(self.config_time),
                "owned_by": "emberline",
            }
        shown = [item for name, item in models.items() if key.models is None or name in key.models]
        return 200, orjson.dumps({"object": "list", "data": shown})
