"""What pages, REST and other rooms ask about routing: of the router itself, with a deadline.

Promises plain values and never an exception for a router that is away: `error` says why there is
nothing to show. The database is asked for the router's address only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from django.core.cache import cache
from django.utils import timezone

from endpoints import selectors as endpoint_selectors
from endpoints.models import Endpoint
from routing import admin_client, choices
from routing.admin_client import RouterSilent, RouterWorker
from routing.doctor.examine import examine as examine_router
from routing.doctor.finding import Examination
from routing.doctor.gather import Named
from routing.kv_index import KvIndex, read_index

T = TypeVar("T")

MAX_DECISIONS = 500
KEEP_S = 24 * 3600  # an answer, for pages while the router is silent


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker as it stood when one request was routed. `matched` is tokens by kind."""

    worker: str
    matched: dict[str, int]
    in_flight: int
    score: float | None
    healthy: bool
    chosen: bool

    @property
    def matched_tokens(self) -> int:
        return sum(self.matched.values())


@dataclass(frozen=True, slots=True)
class Decision:
    """One pick, as pages show it. None: not known (yet), or the engine did not say."""

    id: str
    time: datetime | None
    strategy: str
    reason: str
    chosen: str
    prompt_tokens: int | None
    predicted_cached_tokens: int | None
    cached_tokens: int | None
    ttft_s: float | None
    duration_s: float | None
    status: int | None
    attempts: int
    session: str
    key_id: str
    prefix_blocks: int
    candidates: tuple[Candidate, ...]
    candidates_total: int  # how many there were; a record shows some of many
    raw: dict[str, Any] = field(repr=False)

    @property
    def label(self) -> str:
        return choices.label(self.reason)

    @property
    def sentence(self) -> str:
        return choices.sentence(self.reason)

    @property
    def cached_percent(self) -> int | None:
        if self.cached_tokens is None or not self.prompt_tokens:
            return None
        return min(100, round(100 * self.cached_tokens / self.prompt_tokens))


@dataclass(frozen=True, slots=True)
class Asked(Generic[T]):
    """What the router said, or why it did not."""

    found: T
    error: str = ""


def decisions(endpoint: Endpoint, limit: int = 50) -> Asked[list[Decision]]:
    """Newest first."""
    try:
        raw = admin_client.decisions(endpoint.status.admin_url, min(limit, MAX_DECISIONS))
    except RouterSilent as silence:
        return Asked([], silence.message)
    return Asked([read_decision(item) for item in raw])


def decision(endpoint: Endpoint, number: str) -> Asked[Decision | None]:
    try:
        raw = admin_client.decision(endpoint.status.admin_url, number)
    except RouterSilent as silence:
        return Asked(None, silence.message)
    return Asked(read_decision(raw) if raw is not None else None)


def workers(endpoint: Endpoint) -> Asked[tuple[RouterWorker, ...]]:
    try:
        return Asked(admin_client.workers(endpoint.status.admin_url))
    except RouterSilent as silence:
        return Asked((), silence.message)


def explain(endpoint: Endpoint, prompt: str) -> Asked[Decision | None]:
    """Where this prompt would go now. Nothing is sent to a worker, nothing is remembered."""
    body = {"model": endpoint.name, "prompt": prompt}
    try:
        raw = admin_client.explain(endpoint.status.admin_url, body)
    except RouterSilent as silence:
        return Asked(None, silence.message)
    return Asked(read_decision(raw))


def examine(endpoint: Endpoint) -> Examination:
    """The doctor's checks, made now: some seconds at most. Nothing is changed."""
    workers = [
        Named(worker.name, worker.url, leaving=worker.draining or not worker.ready)
        for worker in endpoint_selectors.worker_facts(endpoint)
    ]
    return examine_router(endpoint.name, endpoint.status.admin_url, workers)


@dataclass(frozen=True, slots=True)
class IndexSeen:
    """The router's KV index: None where its strategy has none. `error` says why there is no newer
    answer than the one of `at`; both are empty where there was never one."""

    index: KvIndex | None = None
    strategy: str = ""
    at: datetime | None = None
    error: str = ""
    raw: dict[str, Any] = field(default_factory=dict, repr=False)


def kv_index(endpoint: Endpoint) -> IndexSeen:
    """As the router says it now; while it is silent, as it last said it to this process."""
    key = f"routing.kv_index.{endpoint.pk}"
    try:
        told = admin_client.page(endpoint.status.admin_url, "/index")
    except RouterSilent as silence:
        known = cache.get(key)
        if known is None:
            return IndexSeen(error=silence.message)
        told, at = known
        return _index_seen(told, at, silence.message)
    now = timezone.now()
    cache.set(key, (told, now), KEEP_S)
    return _index_seen(told, now, "")


def _index_seen(told: dict[str, Any], at: datetime, error: str) -> IndexSeen:
    return IndexSeen(read_index(told), str(told.get("strategy") or ""), at, error, told)


@dataclass(frozen=True, slots=True)
class RouterTarget:
    """What Prometheus scrapes: `address` is HOST:PORT of the admin port."""

    endpoint: str
    namespace: str
    address: str


def targets() -> list[RouterTarget]:
    """Every endpoint's routers that have an address, in one query."""
    found = []
    for endpoint in endpoint_selectors.endpoints():
        several = endpoint.status.parts.get("router", {}).get("admin_urls")
        for url in several or [endpoint.status.admin_url]:
            address = urlsplit(url).netloc
            if address:
                found.append(RouterTarget(endpoint.name, endpoint_selectors.NAMESPACE, address))
    return found


def read_decision(raw: dict[str, Any]) -> Decision:
    """A router's record as a value; what it does not hold is None, whatever its version."""
    chosen = str(raw.get("chosen") or "")
    moment = _number(raw.get("time"))
    candidates = tuple(_candidate(item, chosen) for item in raw.get("candidates") or ())
    return Decision(
        id=str(raw.get("id") or ""),
        time=datetime.fromtimestamp(moment, UTC) if moment else None,
        strategy=str(raw.get("strategy") or ""),
        reason=str(raw.get("reason") or ""),
        chosen=chosen,
        prompt_tokens=_whole(raw.get("prompt_tokens")),
        predicted_cached_tokens=_whole(raw.get("predicted_cached_tokens")),
        cached_tokens=_whole(raw.get("cached_tokens")),
        ttft_s=_number(raw.get("ttft_s")),
        duration_s=_number(raw.get("duration_s")),
        status=_whole(raw.get("status")),
        attempts=_whole(raw.get("attempts")) or 0,
        session=str(raw.get("session") or ""),
        key_id=str(raw.get("key_id") or ""),
        prefix_blocks=_whole(raw.get("prefix_blocks")) or len(raw.get("prefix") or ()),
        candidates=candidates,
        candidates_total=max(_whole(raw.get("candidates_total")) or 0, len(candidates)),
        raw=raw,
    )


def _candidate(item: dict[str, Any], chosen: str) -> Candidate:
    matched = item.get("matched")
    return Candidate(
        worker=str(item.get("worker") or ""),
        matched={
            str(kind): _whole(tokens) or 0
            for kind, tokens in (matched if isinstance(matched, dict) else {}).items()
        },
        in_flight=_whole(item.get("in_flight")) or 0,
        score=_number(item.get("score")),
        healthy=bool(item.get("healthy")),
        chosen=item.get("worker") == chosen,
    )


def _number(value: Any) -> float | None:
    good = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if good else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None else None
