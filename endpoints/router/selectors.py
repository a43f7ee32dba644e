"""Read queries on routing for pages, REST and other apps, answered by the routers.

Requests have a deadline; an unreachable router is reported in `error`, never raised. The database
is used only for router addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

from django.conf import settings
from django.core.cache import cache
from django.utils import timezone

from console.core.errors import Problem, Refused
from endpoints import selectors as endpoint_selectors
from endpoints.keys import selectors as keys_selectors
from endpoints.keys.storage import CONSOLE
from endpoints.models import Endpoint
from endpoints.router.models import PrefixName
from endpoints.spec.state_store import ChosenStore, choose_store
from routing.analysis import prefixes as prefix_groups
from routing.analysis import replay
from routing.analysis.choices import RoutingDecision, as_number, read_decision
from routing.analysis.kv_index import KvIndex, read_index
from routing.analysis.misses import MissTotals, add_slots
from routing.client import admin_client
from routing.client.admin_client import RouterSilentError, RouterWorker, merge_workers
from routing.client.router_reports import (
    RouterReport,
    index_disagreements,
    read_exchange,
    router_name,
)
from routing.doctor.examination import examine as examine_router
from routing.doctor.findings import Examination
from routing.doctor.inspection import NamedWorker
from routing.engine.observe.decisions import SHOWN_BLOCKS

__all__ = ["SHOWN_BLOCKS"]

T = TypeVar("T")
Headers = Mapping[str, str]

MAX_DECISIONS = 500
MAX_GROUPED_DECISIONS = 300  # decisions used for prefix groups
INDEX_CACHE_S = 24 * 3600  # cached reply shown while the router does not respond


@dataclass(frozen=True, slots=True)
class RouterReplies(Generic[T]):
    """Combined router replies, or the error. `note`: some routers did not respond. `requests`:
    number of decisions that `found` was computed from.
    """

    found: T
    error: str = ""
    note: str = ""
    requests: int = 0


def routers(endpoint: Endpoint) -> list[str]:
    """Return the admin URLs of its routers; a single one may be empty (requests then fail)."""
    several = endpoint.status.parts.get("router", {}).get("admin_urls")
    return [str(url) for url in several] if several else [endpoint.status.admin_url]


def decisions(
    endpoint: Endpoint, limit: int = 50, *, brief: bool = False
) -> RouterReplies[list[RoutingDecision]]:
    """Return the decisions of all routers, newest first; `brief` omits prefixes and candidates."""
    limit = min(limit, MAX_DECISIONS)
    words = admin_client.query_routers(
        routers(endpoint), lambda url: admin_client.decisions(url, limit, brief=brief)
    )
    raw = [item for word in words for item in word.answer or ()]
    if len(words) > 1:
        raw.sort(key=lambda item: as_number(item.get("time")) or 0.0, reverse=True)
    return _combine_replies([read_decision(item) for item in raw[:limit]], words)


def name_keys(decisions: Iterable[RoutingDecision]) -> list[RoutingDecision]:
    """Return the decisions with the names of their keys; deleted keys keep their ID."""
    listed = list(decisions)
    names = keys_selectors.names_by_id({decision.key_id for decision in listed})
    return [
        replace(decision, key_name=names.get(decision.key_id, decision.key_id))
        for decision in listed
    ]


def decision(endpoint: Endpoint, number: str) -> RouterReplies[RoutingDecision | None]:
    words = admin_client.query_routers(
        routers(endpoint), lambda url: admin_client.decision(url, number)
    )
    raw = next((word.answer for word in words if word.answer is not None), None)
    if raw is None:
        silence = admin_client.describe_missing(words)
        return RouterReplies(None, silence)
    return RouterReplies(read_decision(raw))


def misses(endpoint: Endpoint, hours: int, now: float) -> RouterReplies[MissTotals]:
    """Return the sums of all routers over the last hours, to the five minutes."""
    windows = miss_windows(endpoint, [now - hours * 3600])
    return RouterReplies(windows.found[0], windows.error, windows.note)


def miss_windows(endpoint: Endpoint, starts: Sequence[float]) -> RouterReplies[list[MissTotals]]:
    """Return the sums of all routers from each of `starts` (Unix time) on."""
    words = admin_client.query_routers(routers(endpoint), admin_client.misses)
    answers = [word.answer or {} for word in words]
    return _combine_replies([add_slots(answers, since) for since in starts], words)


def workers(endpoint: Endpoint) -> RouterReplies[tuple[RouterWorker, ...]]:
    """Return workers with in-flight totals and the worst state over all routers."""
    words = admin_client.query_routers(routers(endpoint), admin_client.workers)
    return _combine_replies(merge_workers([word.answer or () for word in words]), words)


def explain(
    endpoint: Endpoint,
    body: dict[str, Any],
    strategy: str = "",
    headers: Headers | None = None,
    key: str = "",
) -> list[admin_client.RouterReply[RoutingDecision]]:
    """Return each router's ranking for this request, which is not sent or recorded."""
    body = {"model": endpoint.name, **body}
    ask = partial(
        admin_client.explain, body=body, strategy=strategy, key=key or CONSOLE, headers=headers
    )
    return admin_client.query_routers(routers(endpoint), lambda url: read_decision(ask(url)))


def _combine_replies(found: T, words: list[admin_client.RouterReply[Any]]) -> RouterReplies[T]:
    silence = admin_client.describe_missing(words)
    if all(word.error for word in words):
        return RouterReplies(found, silence)
    return RouterReplies(found, note=silence)


def examine(endpoint: Endpoint) -> Examination:
    """Run the doctor's checks (read-only, several seconds at most)."""
    workers = [
        NamedWorker(worker.name, worker.url, leaving=worker.draining or not worker.ready)
        for worker in endpoint_selectors.worker_facts(endpoint)
    ]
    return examine_router(endpoint.name, routers(endpoint), workers)


def router_reports(endpoint: Endpoint) -> tuple[RouterReport, ...]:
    """Return what each router reports of itself, whether it responded or not."""
    replies = admin_client.query_routers(routers(endpoint), _report)
    return tuple(
        word.answer or RouterReport(router_name(word.url), error=word.error) for word in replies
    )


def state_store(endpoint: Endpoint) -> ChosenStore | None:
    """Return the store that its routers are configured with, None for one router or without any."""
    return choose_store(endpoint.parsed, settings.EMBERLINE.state_store)


def _report(url: str) -> RouterReport:
    index = admin_client.fetch_page(url, "/index")
    workers = admin_client.workers(url)
    try:
        exchange = read_exchange(admin_client.fetch_page(url, "/peers"))
    except RouterSilentError as silence:
        if not silence.code.startswith("http_"):  # an older router has no such page
            raise
        exchange = None
    except (KeyError, TypeError, ValueError):
        exchange = None
    return RouterReport(
        router_name(url),
        strategy=str(index.get("strategy") or ""),
        workers=workers,
        kv=read_index(index),
        exchange=exchange,
    )


@dataclass(frozen=True, slots=True)
class KvIndexReply:
    """KV index of the first router that responded, None if the strategy has none; its fallbacks
    are those of all routers. `error` states why the data of `at` is not current; both are empty if
    there was never a reply.

    `replies`: of each of several routers; `note`: some did not respond; `differences`: lines.
    """

    index: KvIndex | None = None
    strategy: str = ""
    at: datetime | None = None
    error: str = ""
    raw: dict[str, Any] = field(default_factory=dict, repr=False)
    replies: tuple[RouterReport, ...] = ()
    note: str = ""
    differences: tuple[str, ...] = ()


def kv_index(endpoint: Endpoint) -> KvIndexReply:
    """Return the KV index, or its last known reply while the router does not respond."""
    key = f"routing.analysis.kv_index.{endpoint.pk}"
    words = admin_client.query_routers(
        routers(endpoint), lambda url: admin_client.fetch_page(url, "/index")
    )
    reply, note = next((word.answer for word in words if word.answer is not None), None), ""
    if reply is None:
        cached, error = cache.get(key), admin_client.describe_missing(words)
        if cached is None:
            return KvIndexReply(error=error)
        reply, read_at = cached
    else:
        read_at, error, note = timezone.now(), "", admin_client.describe_missing(words)
        cache.set(key, (reply, read_at), INDEX_CACHE_S)
    index = read_index(reply)
    replies = tuple(_index_report(word) for word in words) if len(words) > 1 else ()
    if index is not None and replies and not error:
        fallbacks: Counter[str] = Counter()
        for router_reply in replies:
            fallbacks.update(router_reply.kv.fallbacks if router_reply.kv is not None else {})
        index = replace(index, fallbacks=dict(fallbacks))
    strategy = str(reply.get("strategy") or "")
    return KvIndexReply(
        index, strategy, read_at, error, reply, replies, note, index_disagreements(replies)
    )


def _index_report(word: admin_client.RouterReply[dict[str, Any]]) -> RouterReport:
    name, reply = router_name(word.url), word.answer
    if reply is None:
        return RouterReport(name, error=word.error)
    return RouterReport(name, strategy=str(reply.get("strategy") or ""), kv=read_index(reply))


def prefixes(endpoint: Endpoint) -> RouterReplies[list[prefix_groups.PrefixGroup]]:
    reply = decisions(endpoint, MAX_GROUPED_DECISIONS)
    records = [decision.raw for decision in reply.found if decision.raw.get("prefix")]
    groups = prefix_groups.group_prefixes(records, prefix_names(endpoint))
    return RouterReplies(groups, reply.error, reply.note, len(records))


def prefix_names(endpoint: Endpoint) -> dict[str, str]:
    return dict(PrefixName.objects.filter(endpoint=endpoint).values_list("digest", "name"))


@dataclass(frozen=True, slots=True)
class RouterTarget:
    """Prometheus scrape target; `address` is HOST:PORT of the admin port."""

    endpoint: str
    namespace: str
    address: str
    index: int = 0


def targets() -> list[RouterTarget]:
    """Return the routers with an address of every endpoint with metrics, in one query."""
    router_targets = []
    rows = endpoint_selectors.scraped().select_related(None).select_related("status")
    for endpoint in rows.only("name", "status__parts", "status__admin_url"):
        for index, url in enumerate(routers(endpoint)):
            address = urlsplit(url).netloc
            if address:
                namespace = endpoint_selectors.NAMESPACE
                router_targets.append(RouterTarget(endpoint.name, namespace, address, index))
    return router_targets


MAX_REPLAYED = 200
"""Newest decisions replayed, limited because serializing records costs router time."""


def strategy_previews(endpoint: Endpoint) -> RouterReplies[list[replay.ReplayOutcome]]:
    reply = decisions(endpoint, MAX_REPLAYED)
    records = [decision.raw for decision in reply.found]
    # Decisions of an earlier strategy do not measure the current one.
    strategy = endpoint.parsed.routing.effective_strategy
    same = [record for record in records if record.get("strategy") == strategy]
    outcomes = replay.replay_strategies(same, strategy)
    return RouterReplies(outcomes, reply.error, reply.note, len(same))


def require_session_name(endpoint: Endpoint, session: str) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the session's headers and body fields; raise `Refused` if a header cannot carry it."""
    if not session:
        return {}, {}
    if not session.isprintable() or not session.isascii() or len(session) > 200:
        text = "Not valid in a header."
        remedy = "Enter up to 200 printable ASCII characters."
        raise Refused(Problem("session", session, text, remedy, "invalid"))
    source, _, name = endpoint.parsed.routing.session_key.partition(":")
    if source == "header":
        return {name: session}, {}
    if source == "cookie":
        return {"cookie": f"{name}={session}"}, {}
    first, *rest = reversed(name.split("."))
    nested: Any = {first: session}
    for part in rest:
        nested = {part: nested}
    return {}, nested
