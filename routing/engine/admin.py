"""Admin port: health, metrics, decisions, explanations and control actions.

Responses contain no keys, no session names and no prompt text but an allowed preview. Requests from
web pages are rejected (console.processkit.listener). There is no authentication: bind the port to a
private address. Request handling only; admin_connection.py does the I/O.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs

import orjson

from console.processkit import listener
from routing.engine.config import memory_bounds, show_config
from routing.engine.discovery.finders import Discovery
from routing.engine.errors import Refusal, refuse_without_worker
from routing.engine.fleet.circuit import STATE_NAMES
from routing.engine.http.http1 import RequestHead
from routing.engine.kvaware.placement import explain_blocks
from routing.engine.kvaware.service import KvAwareService
from routing.engine.observe.decisions import Decision, show_candidates
from routing.engine.peers.service import PeerExchange
from routing.engine.policies import PLAIN
from routing.engine.policies.base import Fleet, Pick, RequestFacts, RoutingPolicy
from routing.engine.policies.canary import CanaryPolicy
from routing.engine.policies.kvaware import KvAware
from routing.engine.prompt.identity import Identifier, find_session
from routing.engine.router import Router

Answer = tuple[int, bytes, bytes]  # status, content type, body
_JSON = b"application/json"
_TEXT = b"text/plain; version=0.0.4; charset=utf-8"


def _query_number(query: dict[str, list[str]], name: str, default: str) -> int:
    text = query.get(name, [default])[0]
    if not text.isdecimal() or len(text) > 9:
        raise Refusal("bad_request", f"{name} must be a whole number.", name)
    return int(text)


def _query(head: RequestHead) -> dict[str, list[str]]:
    return parse_qs(head.target.partition(b"?")[2].decode("latin-1"))


def _json_answer(data: Any, status: int = 200) -> Answer:
    return status, _JSON, orjson.dumps(data, option=orjson.OPT_APPEND_NEWLINE)


class AdminHandler:
    def __init__(
        self, router: Router, discovery: Discovery, kvaware: KvAwareService, exchange: PeerExchange
    ) -> None:
        self._router = router
        self._exchange = exchange
        self._discovery = discovery
        self._kvaware = kvaware
        self._get = {
            b"/healthz": self._healthz,
            b"/readyz": self._readyz,
            b"/metrics": self._metrics,
            b"/workers": self._workers,
            b"/decisions": self._decisions,
            b"/index": self._index,
            b"/config": self._config,
            b"/admission": self._admission,
            b"/usage": self._usage,
            b"/misses": self._misses,
            b"/recording": self._recording,
            b"/peers": self._peers,
            b"/canary": self._canary,
        }
        self.budget = router.budget
        self._orders = (b"/explain", b"/drain", b"/budgets")

    def refuse_browsers(self, raw: bytes, path: bytes) -> None:
        """Raise Refusal for a web page's request; `raw` is the head as received, with Host."""
        lines = (line.partition(":") for line in raw.decode("latin-1").split("\r\n")[1:])
        headers = {name.strip().lower(): value.strip() for name, _, value in lines}
        admin = self._router.config.admin
        is_local = admin is not None and listener.is_loopback(admin.host)
        problem = listener.request_problem(
            path.decode("latin-1"),
            headers.get,
            is_local=is_local,
            is_order=path in (b"/drain", b"/budgets"),
        )
        if problem:
            raise Refusal("browser_refused", problem)

    async def answer(self, head: RequestHead, body: bytes) -> Answer:
        try:
            if head.path in self._orders:
                return await self._change(head, body)
            return self._route(head)
        except Refusal as refusal:
            return refusal.kind.status, _JSON, refusal.body()

    async def _change(self, head: RequestHead, body: bytes) -> Answer:
        if head.method != b"POST":
            raise Refusal("method_not_allowed", "Use POST.")
        if head.path == b"/budgets":
            return self._budgets(body)
        query = _query(head)
        if head.path == b"/explain":
            return await self._explain(head, query, body)
        return self._drain(query)

    def _route(self, head: RequestHead) -> Answer:
        path = head.path
        query = _query(head)
        if path.startswith(b"/decisions/"):
            return self._decision(path.removeprefix(b"/decisions/").decode("latin-1"))
        if path not in self._get:
            raise Refusal("not_found", "Not found.")
        if head.method not in (b"GET", b"HEAD"):
            raise Refusal("method_not_allowed", "Use GET.")
        return self._get[path](query)

    def _healthz(self, _query: dict[str, list[str]]) -> Answer:
        return _json_answer({"status": "ok"})

    def _readyz(self, _query: dict[str, list[str]]) -> Answer:
        router = self._router
        if router.closing or router.draining:
            return _json_answer({"status": "draining"}, 503)
        if not router.table.eligible:
            return _json_answer({"status": "no worker is up"}, 503)
        return _json_answer({"status": "ready", "workers": len(router.table.eligible)})

    def _metrics(self, _query: dict[str, list[str]]) -> Answer:
        return 200, _TEXT, self._router.metrics.registry.render()

    def _workers(self, _query: dict[str, list[str]]) -> Answer:
        workers = [
            {
                "id": worker.id,
                "url": worker.url,
                "source": worker.source,
                "state": worker.state,
                "circuit": STATE_NAMES[worker.circuit.state],
                "slow_start": worker.slow_since > 0,
                "cache_tokens": worker.cache_tokens,
                "in_flight": worker.own_in_flight,
                "peers_in_flight": worker.of_peers[0],
                "served": worker.served,
                "failures": worker.failures,
                "failed_requests": worker.failed_requests,
                "last_error": worker.last_error,
                "in_flight_tokens": round(worker.load),
                "pace": round(worker.pace, 2),
            }
            for worker in self._router.table.workers.values()
        ]
        return _json_answer({"workers": workers, "discovery": self._discovery.show()})

    def _decisions(self, query: dict[str, list[str]]) -> Answer:
        """List decisions. `?skip=N`: omit the newest N. `?brief=1`: without prefixes and
        candidates, which take most of the time and block the loop.
        """
        limit, skip = _query_number(query, "limit", "100"), _query_number(query, "skip", "0")
        brief = query.get("brief", ["0"])[0] == "1"
        router = self._router
        decisions = router.ring.newest(limit + skip)[skip:]
        entries = [self._show(decision, brief) for decision in decisions]
        return _json_answer({"decisions": entries})

    def _decision(self, number: str) -> Answer:
        decision = self._router.ring.get(number)
        if decision is None:
            raise Refusal("not_found", "Unknown decision, or no longer stored.")
        return _json_answer(self._show(decision))

    def _show(self, decision: Decision, brief: bool = False) -> dict[str, Any]:
        router = self._router
        document = decision.show(router.config.endpoint, router.identifier.digest, brief)
        if decision.preview:
            document["preview"] = decision.preview
        return document

    def _index(self, _query: dict[str, list[str]]) -> Answer:
        router = self._router
        sizes = router.policy.sizes()
        document = {
            "strategy": router.policy.name,
            "block_bytes": router.config.prefix_block_bytes,
            "limit_blocks": router.config.prefix_memory_blocks,
            "workers": {key: sizes.get(key, 0) for key in router.table.workers},
        }
        if self._kvaware.listening is not None:
            document["kv"] = self._kvaware.listening.show()
        return _json_answer(document)

    def _admission(self, _query: dict[str, list[str]]) -> Answer:
        return _json_answer(self._router.admission.show())

    def _usage(self, _query: dict[str, list[str]]) -> Answer:
        return _json_answer(self._router.recorder.use.show())

    def _misses(self, _query: dict[str, list[str]]) -> Answer:
        router = self._router
        return _json_answer(router.misses.show(router.identifier.digest))

    def _recording(self, query: dict[str, list[str]]) -> Answer:
        """Return recorded traffic. `?instance=ID&after=N`: pieces up to N are stored elsewhere."""
        after, instance = _query_number(query, "after", "0"), query.get("instance", [""])[0]
        return _json_answer(self._router.recorder.traffic.collect(instance, after))

    def _peers(self, _query: dict[str, list[str]]) -> Answer:
        return _json_answer({"exchange": self._exchange.show()})

    def _canary(self, _query: dict[str, list[str]]) -> Answer:
        router = self._router
        document = None if router.canary is None else router.canary.show()
        return _json_answer({"instance": router.instance, "canary": document})

    def _config(self, _query: dict[str, list[str]]) -> Answer:
        router = self._router
        document = {
            "config": show_config(router.config),
            "loaded_at": router.config_time,
            "refused": router.config_error,
            "needs_restart": router.config_ignored,
            "bounds": memory_bounds(router.config, len(router.table.workers)),
        }
        return _json_answer(document)

    async def _explain(self, head: RequestHead, query: dict[str, list[str]], body: bytes) -> Answer:
        """Return the ranking of a request without sending it; `?strategy=NAME`: under that
        strategy; `?key=ID`: with that key.
        """
        body = await self._router.meter.as_sent(body, query.get("key", [""])[0])
        name = query.get("strategy", [""])[0] or self._router.policy.name
        if name != self._router.policy.name:
            pick, features = await _explain_as(self._router, name, head, body)
            return _json_answer(_show_explanation(name, pick, features))
        pick, features, fallback = await _explain(self._router, head, body)
        listening = self._kvaware.listening
        details = {} if listening is None else {"kv": listening.explain(pick, features, fallback)}
        return _json_answer(_show_explanation(name, pick, features) | details)

    def _budgets(self, body: bytes) -> Answer:
        try:
            budgets = orjson.loads(body)
            self._router.recorder.use.apply_budgets(budgets["instance"], budgets["keys"])
        except (ValueError, TypeError, KeyError, OverflowError):
            message = (
                'Send {"instance": TEXT, "keys": {ID: {"left": N, "counted": N, "resets_at": N}}}.'
            )
            raise Refusal("bad_request", message) from None
        return _json_answer({})

    def _drain(self, query: dict[str, list[str]]) -> Answer:
        """Drain the router (`?worker=ID`: that worker); `?undo=1` reverts."""
        router = self._router
        draining = query.get("undo", ["0"])[0] != "1"
        name = query.get("worker", [""])[0]
        if not name:
            router.draining = draining
            return _json_answer({"draining": draining})
        worker = router.table.workers.get(name)
        if worker is None:
            raise Refusal("unknown_worker", "Unknown worker.")
        worker.order_draining = draining
        router.table.refresh()
        return _json_answer(
            {"worker": name, "draining": worker.draining, "in_flight": worker.own_in_flight}
        )


def _show_explanation(strategy: str, pick: Pick, facts: RequestFacts) -> dict[str, Any]:
    return {
        "strategy": strategy,
        "prompt_tokens": facts.tokens,
        "prompt_tokens_estimated": facts.blocks is None,
        "prefix_blocks": len(facts.chain),
        "chosen": pick.worker.id,
        "reason": pick.reason,
        "predicted_cached_tokens": pick.cached_tokens,
        "candidates_total": pick.total,
        "candidates": sorted(
            show_candidates(pick.candidates, pick.tiers),
            key=lambda item: (not item["healthy"], item["score"]),
        ),
    }


# ---- ranking of a request without side effects: the strategies' own code on the live fleet


async def _explain(
    router: Router, head: RequestHead, body: bytes
) -> tuple[Pick, RequestFacts, str]:
    """Return the pick, the facts, and why the request's blocks are unknown ("" if known or unused).
    Raise Refusal.
    """
    identity = await router.read_body(head, body, path=b"")
    features = identity.facts
    fallback = ""
    if router.kv is not None:
        fallback = explain_blocks(router.kv, body, identity)
    if not router.table.eligible:
        raise refuse_without_worker(router.config.paused)
    fleet = router.table.fleet
    return router.policy.rank(features, fleet, shown=len(fleet)), features, fallback


async def _explain_as(
    router: Router, strategy: str, head: RequestHead, body: bytes
) -> tuple[Pick, RequestFacts]:
    policy = _build_policy(router.policy, strategy)
    config = router.config
    key = config.session_key if policy.needs_session else None
    identifier = Identifier(
        config.hash_key, config.prefix_block_bytes, key, b"", router.ratios, config.limits
    )
    session = find_session(head, key)
    identity = await identifier.read_large(b"", body, session, policy.needs_chain)
    if isinstance(policy, KvAware) and router.kv is not None:
        explain_blocks(router.kv, body, identity)
    if not router.table.eligible:
        raise refuse_without_worker(router.config.paused)
    fleet = router.table.fleet
    # The load order belongs to the active strategy: scan all workers instead.
    plain = Fleet(fleet.eligible, fleet.others)
    return policy.rank(identity.facts, plain, shown=len(fleet)), identity.facts


def _build_policy(current: RoutingPolicy, strategy: str) -> RoutingPolicy:
    """Raise Refusal for a strategy whose state this router lacks: prefix memory or KV events."""
    if isinstance(current, CanaryPolicy):
        arms = current.arms
        current = next((arm for arm in arms if isinstance(arm, KvAware)), arms[0])
        policy = next((arm for arm in arms if arm.name == strategy), None)
        if policy is not None:
            return policy
    if strategy in PLAIN:
        return PLAIN[strategy]()
    if strategy == "prefixaware" and isinstance(current, KvAware):
        return current.by_prefix
    if strategy in ("prefixaware", "kvaware"):
        lacks = "has no KV index" if strategy == "kvaware" else "has no prefix memory"
        text = (
            f"While its strategy is {current.name} the router {lacks}, so the result is "
            "unavailable."
        )
        raise Refusal("bad_request", text, "strategy")
    raise Refusal("bad_request", "Unknown strategy.", "strategy")
