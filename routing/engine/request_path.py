"""Request routing: authentication, admission, choice of a worker, retries and accounting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Final

from routing.engine.access.keys import check_model
from routing.engine.access.paths import CONTROL, control_refusal, without_slash
from routing.engine.config import Key
from routing.engine.errors import Refusal, refuse_without_worker
from routing.engine.exchange import Exchange
from routing.engine.fleet.responses import PATH as RESPONSES_PATH
from routing.engine.fleet.responses import named_response
from routing.engine.http.bodies import BYTE_ORDER_MARK, ReadPace, is_small
from routing.engine.http.cors import is_preflight
from routing.engine.http.encodings import check_encoding, decode
from routing.engine.http.http1 import RequestHead
from routing.engine.local_answers import HEALTH_PATHS, LocalAnswers
from routing.engine.observe.decisions import Decision
from routing.engine.observe.metrics import ModelMetrics
from routing.engine.policies import base
from routing.engine.policies.base import Fleet, Pick
from routing.engine.prompt.engine_request import EngineRequest
from routing.engine.prompt.identity import Identity, find_session, preview
from routing.engine.retries import Retries
from routing.engine.router import Router

if TYPE_CHECKING:
    from routing.engine.fleet.workers import Worker
    from routing.engine.protocols import ClientSide
    from routing.engine.request import RoutedRequest

_RESET_PATHS: Final = (b"/reset_prefix_cache", b"/sleep")  # they empty a worker's cache


class RequestPath:
    """What happens to a request, step by step; everything it needs to know is the router's."""

    def __init__(self, router: Router) -> None:
        self.router = router
        self.retries = Retries(self.send_again, router.is_busy)
        self._local = LocalAnswers(router)

    def name_request(self, head: RequestHead) -> None:
        """Name the request, and apart from it what its worker sees: engines join requests with
        one ID, and callers may choose the same.
        """
        own = self.router.new_id().encode()
        if head.request_id:
            head.engine_id = head.request_id + b"-" + own[9:]
        else:
            head.request_id = head.engine_id = own

    def admit(self, head: RequestHead) -> Key:
        """Authenticate and authorize before the body is read. Raise Refusal.

        An unknown path is answered after its body, so that the connection stays (`handle`).
        """
        router = self.router
        path = head.path
        if path[-1:] == b"/" and (served := without_slash(path)):
            head.target = served + head.target[len(path) :]
            head.path = path = served
        if path in HEALTH_PATHS or is_preflight(head):
            return Key("", "")
        try:
            key = router.keys.check(head.authorization)
        except Refusal:
            if not router.renew_keys(perf_counter()):
                raise
            key = router.keys.check(head.authorization)
        if not key.admin and router.paths.access(path) == CONTROL:
            raise control_refusal(path)
        if head.encoding:
            check_encoding(head.encoding)
        if head.length > router.config.limits.body_bytes:
            limit = router.config.limits.body_bytes
            raise Refusal("body_too_large", f"The body is larger than {limit} bytes.")
        if head.pin:
            if not key.pin:
                raise Refusal("pin_not_allowed", "This key is not allowed to pin a worker.")
            if head.pin.decode("latin-1") not in router.table.workers:
                raise Refusal("unknown_worker", "x-emberline-pin is not a worker of this endpoint.")
        return key

    def handle(
        self, client: ClientSide, head: RequestHead, key: Key, body: bytes | None, seen: bytes
    ) -> None:
        """Answer locally or dispatch; `body` None: the body is streamed, `seen` is its buffered
        part.
        """
        router = self.router
        path = head.path
        if self._local.answers(client, head, key, body):
            return
        started = perf_counter()
        if body is not None and body[:3] == BYTE_ORDER_MARK:
            body = seen = body[3:]
        ask = EngineRequest(head.path)
        scope = router.meter.scope_there(key, ask.path)
        identity: Identity | None = None
        problem: Refusal | None = None
        try:
            if router.queues and not router.paths.needs_admin(path):
                router.admission.check(key, len(body or b""), may_wait=not head.pin)
            identity = self._identify(head, key, body, seen, scope)
        except Refusal as refusal:
            problem = refusal
        request_identity = identity or router.identifier.scan(seen, b"")
        model = router.metrics.model(request_identity.model, key.id)
        decision = Decision(router.new_id(), time.time(), router.policy.name)
        decision.request_id = head.request_id.decode("latin-1")
        decision.key_id = key.id
        exchange = Exchange(
            router, self, client, head, body, request_identity.facts, model, decision, ask, started
        )
        decision.note(request_identity.facts, model.name)
        router.ring.add(decision)
        client.begin(exchange)
        if router.recorder.traces:
            exchange.trace = router.recorder.trace(head)
        self.retries.came()
        if problem is not None:
            exchange.refuse(problem)
        elif identity is None:
            self._start(exchange, self._read_large(exchange, key, scope, started))
        else:
            self._place(exchange, key, identity, started)
            self._compare(exchange, identity)

    def _start(self, exchange: Exchange, step: Coroutine[None, None, None]) -> None:
        """Run a step of a request that takes a while; its client has a deadline meanwhile."""
        exchange.deadline = perf_counter() + self.router.config.limits.response_timeout_s
        task = self._run(exchange, step)
        exchange.reading = asyncio.get_running_loop().create_task(task)

    @staticmethod
    async def _run(exchange: Exchange, step: Coroutine[None, None, None]) -> None:
        try:
            await step
        except Exception as error:  # noqa: BLE001 - nobody awaits the task: its client would hang
            exchange.crashed(error)

    async def _decoded(self, exchange: Exchange, body: bytes) -> bytes:
        """Return the body without its content coding, counted in the buffer budget."""
        router = self.router
        head = exchange.head
        limit = router.config.limits.hold_bytes
        async with router.reading:
            body = await decode(body, head.encoding, limit, ReadPace())
        head.encoding = b""
        exchange.body = body = body.removeprefix(BYTE_ORDER_MARK)
        if not exchange.client.recharge(len(body)):
            raise router.budget.full()
        return body

    async def _read_large(self, exchange: Exchange, key: Key, scope: str, began: float) -> None:
        body = exchange.body
        assert body is not None
        try:
            if exchange.head.encoding:
                body = await self._decoded(exchange, body)
            identity = await self.router.read_body(exchange.head, body, scope=scope)
        except Refusal as refusal:
            exchange.reading = None
            exchange.refuse(refusal)
            return
        exchange.reading = None
        exchange.facts = identity.facts
        exchange.model = self.router.metrics.model(identity.model, key.id)
        exchange.decision.note(identity.facts, exchange.model.name)
        self._place(exchange, key, identity, began)
        self._compare(exchange, identity)

    def _compare(self, exchange: Exchange, identity: Identity) -> None:
        try:
            if length := self.router.config.preview_chars:
                exchange.decision.preview = preview(identity.data, length)
            self.router.misses.compare(exchange, identity)
        except Exception as error:  # noqa: BLE001 - the worker has the request
            self.router.internal_error("misses", error)

    def _place(self, exchange: Exchange, key: Key, identity: Identity, began: float) -> None:
        router = self.router
        try:
            if key.models is not None:
                check_model(key.models, exchange.body, identity.data)
            exchange.body = router.meter.prepare(exchange, identity, key)
            exchange.decision.requested = hash(identity.model)
            exchange.requested_model = identity.model
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        for observe in router.observers.arrived:
            observe(exchange, identity)
        canary = router.canary
        if (
            router.kv is not None
            and exchange.body is not None
            and (canary is None or canary.is_kvaware[exchange.facts.arm])
        ):
            waits = router.kv.read(
                exchange, identity.model, identity.sent, lambda: self._go_on(exchange, key, began)
            )
            if waits:
                return
        self._enter(exchange, key, began)

    def _go_on(self, exchange: Exchange, key: Key, began: float) -> None:
        try:
            self._enter(exchange, key, began)
        except Exception as error:  # noqa: BLE001 - called for this request, by no part of it
            exchange.crashed(error)

    def _enter(self, exchange: Exchange, key: Key, began: float) -> None:
        stored = exchange.ask.previous_response or named_response(exchange.ask.path)
        if stored:
            exchange.stored_response = stored
            if self.router.responses.searches(stored):
                self._start(exchange, self._find_response(exchange, key, began))
                return
        self._admit(exchange, key, began)

    async def _find_response(self, exchange: Exchange, key: Key, began: float) -> None:
        head = exchange.head
        lines = b""
        if self.router.keys.open and head.authorization:
            lines = b"authorization: " + head.authorization + b"\r\n"
        await self.router.responses.find(exchange.stored_response, lines)
        exchange.reading = None
        self._admit(exchange, key, began)

    def _admit(self, exchange: Exchange, key: Key, began: float) -> None:
        router = self.router
        exchange.deadline = 0.0
        try:
            router.meter.admit(exchange, key, free=router.paths.needs_admin(exchange.head.path))
            if router.queues and not self._admitted(exchange, key):
                return
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        self._dispatch(exchange, began)

    def _admitted(self, exchange: Exchange, key: Key) -> bool:
        """Return True if admitted, False if queued. Raise Refusal."""
        head = exchange.head
        if self.router.paths.needs_admin(head.path):
            return True  # control requests do not queue
        held = len(exchange.body or b"")
        return self.router.admission.enter(
            exchange, key, exchange.facts, held, may_wait=not head.pin
        )

    def take_turn(self, exchange: RoutedRequest, waited_s: float) -> None:
        exchange.decision.queued_s = waited_s
        try:
            self._dispatch(exchange, perf_counter())
        except Exception as error:  # noqa: BLE001 - called as another request ends
            exchange.crashed(error)

    def _dispatch(self, exchange: RoutedRequest, began: float) -> None:
        try:
            if exchange.head.pin:
                pick = self._pinned(exchange)
            elif exchange.stored_response:
                pick = self._pick_storing(exchange)
            else:
                pick = self._pick(exchange)
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        self._send(exchange, pick)
        self.router.strategy.overhead.observe(perf_counter() - began)

    def _identify(
        self, head: RequestHead, key: Key, body: bytes | None, seen: bytes, scope: str
    ) -> Identity | None:
        """Return None for a body that takes long to parse (see `read_body`). Raise Refusal."""
        router = self.router
        session = b"" if router.session_key is None else find_session(head, router.session_key)
        needs_chain = router.hashes_prompts
        if head.encoding:
            if body is None:
                limit = router.config.limits.hold_bytes
                text = f"A compressed body may have at most {limit} bytes (limits.hold_bytes)."
                raise Refusal("body_too_large", text)
            return None
        if body is None or not (
            router.identifier.reads(needs_chain)
            or key.models is not None
            or router.meter.reads(key, scope, body)
            or head.diagnostics
        ):
            return router.identifier.scan(seen, session)
        if not is_small(body):
            return None
        return router.identifier.read(head.path, body, session, needs_chain, scope)

    def _pick(self, exchange: RoutedRequest) -> Pick:
        router = self.router
        fleet = router.table.fleet
        if exchange.tried:
            fleet = fleet.without(exchange.tried)
        if not fleet.eligible:
            raise refuse_without_worker(router.config.paused)
        if router.listed_at and (places := router.listed_at.get(exchange.requested_model)):
            fleet = fleet.without([w for w in router.table.eligible if w.id not in places])
            if not fleet.eligible:
                name = exchange.requested_model[:100]
                text = f"No worker that serves the model {name!r} can accept this request."
                raise Refusal("no_healthy_worker", text)
        if router.capped:
            full = [w for w in router.table.eligible if w.in_flight >= w.max_in_flight]
            if full:  # a retry may exceed the limit
                roomy = fleet.without(full)
                fleet = roomy if roomy.eligible else fleet
        before = perf_counter()
        pick = router.policy.rank(exchange.facts, fleet)
        router.strategy.lookup.observe(perf_counter() - before)
        if exchange.tried:
            pick.reason = base.RETRY
        return pick

    def _pinned(self, exchange: RoutedRequest) -> Pick:
        worker = self.router.table.workers.get(exchange.head.pin.decode("latin-1"))
        if worker is None:
            raise Refusal("unknown_worker", "x-emberline-pin is not a worker of this endpoint.")
        if not worker.up:
            raise Refusal("no_healthy_worker", "The pinned worker is down.")
        exchange.pinned = True
        return self._pick_worker(exchange, worker)

    def _pick_storing(self, exchange: RoutedRequest) -> Pick:
        """Pick the worker that stores the named response; any other would not find it."""
        worker = self.router.responses.worker(exchange.stored_response)
        if worker is None or not worker.up:
            return self._pick(exchange)
        return self._pick_worker(exchange, worker)

    def _pick_worker(self, exchange: RoutedRequest, worker: Worker) -> Pick:
        others = [other for other in self.router.table.workers.values() if other is not worker]
        pick = self.router.policy.rank(exchange.facts, Fleet((worker,), others))
        pick.reason = base.PINNED
        return pick

    def _send(self, exchange: RoutedRequest, pick: Pick) -> None:
        router = self.router
        worker = router.table.workers[pick.worker.id]
        features = exchange.facts
        decision = exchange.decision
        decision.candidates = pick.candidates
        decision.compared = pick.total
        decision.chosen = worker.id
        decision.reason = pick.reason
        decision.tiers = pick.tiers
        decision.predicted = pick.cached_tokens
        worker.decisions[pick.reason].value += 1
        router.picked(worker)
        if features.tokens:
            router.strategy.match_ratio.observe(pick.cached_tokens / features.tokens)
        router.policy.sent(features, worker)
        if router.kv is not None:
            router.kv.sent(exchange, pick, idle=not worker.in_flight)
        for observe in router.observers.placed:
            observe(exchange)
        if worker.circuit.state:
            router.table.sent(worker)
        exchange.send_to(worker, features.tokens - pick.cached_tokens)

    def send_again(self, exchange: RoutedRequest) -> None:
        if self.retries.wait(exchange, self.router.config.admission.queue.timeout_s):
            return
        try:
            pick = self._pick(exchange)
        except Refusal as refusal:
            exchange.refuse(refusal)
            return
        self._send(exchange, pick)

    def retry_allowed(self, exchange: RoutedRequest, free: bool, waits: bool) -> bool:
        """Return True if another worker and the retry budget allow a retry; charges the budget.

        Without budget a retry that `waits` is delayed, within the limit of the queue.
        """
        router = self.router
        if all(worker in exchange.tried for worker in router.table.eligible):
            return False
        if free:
            return True
        if self.retries.take():
            return True
        waiting = router.admission.depth + len(self.retries.waiting)
        exchange.delayed = waits and not 0 < router.admission.limit <= waiting
        return exchange.delayed

    def finished(self, exchange: RoutedRequest) -> None:
        try:
            self._account(exchange)
        except Exception as error:  # noqa: BLE001 - the request has ended, whatever this is
            self.router.internal_error("accounting", error)
        if exchange.ticket is not None:
            # Last, since it may dispatch the next request.
            self.router.admission.done(exchange.ticket, *exchange.decision.used())
        self.retries.ended(exchange)

    def _account(self, exchange: RoutedRequest) -> None:
        router = self.router
        decision = exchange.decision
        router.meter.account(exchange, decision.error)
        worker = router.table.workers.get(decision.chosen)
        if decision.status == 200 and worker is not None:
            prompt, cached = decision.prompt_tokens, decision.cached_tokens
            if decision.estimated or exchange.ask.skips_cache:
                cached = None
            router.policy.ended(exchange.facts, worker, prompt, cached)
            if exchange.ask.path == RESPONSES_PATH and decision.answer_id:
                router.responses.stored(decision.answer_id, worker.id)
        elif worker is not None and 400 <= (decision.status or 0) < 499 and exchange.answered:
            router.policy.refused(exchange.facts, worker)  # nothing of its prompt was computed
        model: ModelMetrics = exchange.model
        status = decision.status or 0
        router.metrics.count(model, status)
        duration = decision.duration_s or 0.0
        model.duration.observe(duration)
        if decision.ttft_s is not None:
            model.ttft[exchange.cache_state()].observe(decision.ttft_s)
        if decision.error:
            router.metrics.error(decision.error)
        for observe in router.observers.ended:
            observe(exchange)
        if exchange.head.path in _RESET_PATHS and status == 200:
            router.was_reset(decision.chosen, exchange.answer_end())
