"""Collection of API key usage from all routers, and distribution of remaining budgets.

A router that does not respond costs its deadline and is retried in the next round: its counters are
cumulative, so nothing is lost while its process runs. Its endpoint is reconciled, since nothing
announces a router that hangs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

from django.utils import timezone

from endpoints import actions, selectors
from endpoints.choices import Phase
from endpoints.keys import usage
from endpoints.models import Endpoint
from routing.client import admin_client
from routing.client.admin_client import RouterSilentError

log = logging.getLogger(__name__)

DEADLINE_S = 1.5
_MAX_CONCURRENT = 8


def collect_key_usage() -> int:
    """Run one round; return the number of routers that responded."""
    targets = [
        (endpoint, url) for endpoint in selectors.endpoints() for url in admin_urls(endpoint)
    ]
    with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
        replies = list(pool.map(_fetch_usage, (url for _, url in targets)))
    for (endpoint, _), reply in zip(targets, replies, strict=True):
        if reply is None and endpoint.status.phase == Phase.READY and not endpoint.deleting:
            actions.nudge(endpoint)
    now = timezone.now()
    answered = [(*where, reply) for where, reply in zip(targets, replies, strict=True) if reply]
    marks = usage.latest_marks(now)
    idle = []
    for endpoint, _, usage_reply in answered:
        if mark := usage.find_idle(marks, endpoint, usage_reply):
            idle.append(mark)
        else:
            usage.add_report(endpoint, usage_reply, now)
    usage.renew_marks(idle, now)
    if usage.any_budget():
        with ThreadPoolExecutor(_MAX_CONCURRENT) as pool:
            list(pool.map(lambda one: _send_budgets(*one), list(_budgets(answered, now))))
    changed = list(usage.update_budgets(now))
    for endpoint in usage.endpoints_of_keys(changed) if changed else ():
        if not endpoint.deleting:
            actions.nudge(endpoint)
    return len(answered)


def admin_urls(endpoint: Endpoint) -> list[str]:
    several = endpoint.status.parts.get("router", {}).get("admin_urls")
    several = several or [endpoint.status.admin_url]
    return [url for url in several if url]


def _fetch_usage(url: str) -> dict[str, Any] | None:
    try:
        return admin_client.usage(url, DEADLINE_S)
    except RouterSilentError as silence:
        log.info("No key usage from router %s: %s", url, silence.message)
        return None


def _budgets(
    answered: list[tuple[Endpoint, str, dict[str, Any]]], now: datetime
) -> Iterator[tuple[str, str, dict[str, dict[str, Any]]]]:
    """Yield each router's URL, its instance and its keys' remaining budgets."""
    left: dict[str, dict[str, dict[str, Any]]] = {}
    for endpoint, url, reply in answered:
        if endpoint.name not in left:
            left[endpoint.name] = usage.budgets_left(endpoint, now)
        keys = left[endpoint.name].items()
        yield (
            url,
            reply["instance"],
            {k: {**b, "counted": usage.counted_by(reply, k)} for k, b in keys},
        )


def _send_budgets(url: str, instance: str, budgets: dict[str, dict[str, Any]]) -> None:
    """Send budgets to a router, which keeps its previous ones on failure."""
    try:
        if budgets:
            admin_client.send_budgets(url, instance, budgets, DEADLINE_S)
    except RouterSilentError as silence:
        log.info("Budgets not sent to router %s: %s", url, silence.message)
