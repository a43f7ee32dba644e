"""Collection of recorded traffic from all routers into the database.

A piece is stored once, however often it is received. A router keeps pieces until the next round
confirms them, so that a restart of the console loses none; what a router that ended had not
delivered is lost.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

from django.utils import timezone

from dashboards.insight.traces import storage
from dashboards.insight.traces.models import TracePiece, TraceSource
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.router.key_usage import admin_urls
from routing.client import admin_client
from routing.client.admin_client import RouterSilentError

log = logging.getLogger(__name__)

DEADLINE_S = 3.0
MIB = 2**20
_MAX_CONCURRENT = 8
_GIVEN_UP = timedelta(hours=1)


def has_work() -> bool:
    """Return whether a router records, or may have pieces to collect."""
    recording = Endpoint.objects.filter(spec__routing__record_traffic=True)
    return TraceSource.objects.filter(active=True).exists() or recording.exists()


def collect() -> int:
    """Run one round; return the number of routers that responded."""
    now = timezone.now()
    TraceSource.objects.filter(active=True, seen_at__lt=now - _GIVEN_UP).update(active=False)
    sources = {
        (trace_source.endpoint_id, trace_source.url): trace_source
        for trace_source in TraceSource.objects.filter(active=True)
    }
    unfinished = {endpoint for endpoint, _ in sources}
    followed = [
        (endpoint, url, sources.get((endpoint.pk, url)))
        for endpoint in selectors.endpoints()
        if endpoint.pk in unfinished or endpoint.parsed.routing.record_traffic
        for url in admin_urls(endpoint)
    ]
    if not followed:
        return 0
    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        replies = list(pool.map(_fetch, ((url, source) for _, url, source in followed)))
    grown: dict[Any, Endpoint] = {}
    for (endpoint, url, source), reply in zip(followed, replies, strict=True):
        if reply is None or (source is None and not reply["pieces"] and not reply["recording"]):
            continue
        try:
            if storage.add_pieces(endpoint, url, reply, now):
                grown[endpoint.pk] = endpoint
        except (KeyError, TypeError, ValueError, OverflowError):
            log.warning("Invalid recording from router %s; it is ignored", url)
    for endpoint in grown.values():
        _prune(endpoint)
    return sum(reply is not None for reply in replies)


def _fetch(target: tuple[str, TraceSource | None]) -> dict[str, Any] | None:
    url, source = target
    instance, after = (source.router, source.collected) if source is not None else ("", 0)
    try:
        return admin_client.recording(url, instance, after, DEADLINE_S)
    except RouterSilentError as silence:
        log.info("No recorded traffic from router %s: %s", url, silence.message)
        return None


def prune_all() -> None:
    """Delete recorded hours beyond the limits of their endpoints, also where recording is off."""
    recorded = TracePiece.objects.order_by().values_list("endpoint", flat=True).distinct()
    for endpoint in selectors.endpoints().filter(pk__in=list(recorded)):
        _prune(endpoint)


def _prune(endpoint: Endpoint) -> None:
    limits = endpoint.parsed.routing
    storage.prune(endpoint, limits.record_mib * MIB, limits.record_days, timezone.now())
