"""Collection of canary statistics from all routers, and the decision taken from them.

Statistics are cumulative per router process; the latest report of each is kept, so that a restarted
router loses at most one period. The test may be read at every period (analysis.sequential): a
canary that is worse is stopped, one that is better is proposed for promotion.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils import timezone

from endpoints.router import selectors as routing_selectors
from endpoints.router.canary import actions, selectors
from endpoints.router.models import Canary, CanaryState
from routing.analysis.canary import ARMS, BETTER, WORSE, CanaryResult, read_arms
from routing.client import admin_client
from routing.client.admin_client import RouterReply

log = logging.getLogger(__name__)

DEADLINE_S = 2.0
MAX_POINTS = 240
MAX_REPORTS = 200  # router processes


def collect_canaries() -> int:
    """Run one round over all running canaries; return their number."""
    rows = Canary.objects.filter(state=CanaryState.RUNNING).defer("reports", "history")
    running = list(rows.select_related("endpoint__status"))
    for canary in running:
        words = admin_client.query_routers(
            routing_selectors.routers(canary.endpoint),
            lambda url: admin_client.canary(url, DEADLINE_S),
        )
        apply_replies(canary, words)
    return len(running)


def apply_replies(listed: Canary, words: Sequence[RouterReply[dict[str, Any]]]) -> None:
    """Store what the routers report and act on the verdict."""
    with transaction.atomic():
        rows = Canary.objects.select_for_update(of=("self",), no_key=True)
        rows = rows.select_related("endpoint").filter(pk=listed.pk, state=CanaryState.RUNNING)
        canary = rows.first()
        if canary is None:
            return
        strategy = canary.endpoint.parsed.routing.effective_strategy
        if canary.endpoint.deleting or strategy != canary.control:
            reason = f"The strategy of the endpoint was changed to {strategy}."
            if canary.endpoint.deleting:
                reason = "The endpoint is being deleted."
            actions.stop_automatically(canary, reason)
            return
        applied = _add_reports(canary, words)
        canary.error = _describe_missing(words, applied)[:300]
        canary.collected_at = timezone.now()
        result = selectors.result(canary)
        before = canary.verdict
        canary.verdict, canary.message = result.verdict, result.message
        _add_point(canary, result)
        canary.save()
        if result.verdict == WORSE:
            actions.stop_automatically(canary, f"Stopped automatically. {result.message}")
        elif result.verdict == BETTER and before != BETTER:
            actions.propose(canary)


def _add_reports(canary: Canary, words: Sequence[RouterReply[dict[str, Any]]]) -> int:
    """Keep the latest report of each router process; return how many run this canary."""
    applied = 0
    for word in words:
        reported = (word.answer or {}).get("canary")
        if word.answer is None or reported is None or reported.get("id") != str(canary.pk):
            continue
        try:
            arms = reported["arms"]
            read_arms(arms)
        except (KeyError, TypeError, ValueError) as error:
            log.warning("Canary statistics of router %s are invalid: %r", word.url, error)
            continue
        applied += 1
        instance = word.answer["instance"]
        last_report = canary.reports.get(instance)
        if last_report is None and len(canary.reports) >= MAX_REPORTS:
            continue
        if last_report is None or _counts(arms) >= _counts(last_report):  # a late reply is older
            canary.reports[instance] = arms
    canary.routers = max(canary.routers, applied)
    return applied


def _counts(arms: Mapping[str, Any]) -> tuple[int, int]:
    """Return requests and ended sessions, which never fall; sessions end without a request, too."""
    requests, sessions = (
        sum(int(arms[name][what]) for name in ARMS) for what in ("requests", "sessions")
    )
    return requests, sessions


def _describe_missing(words: Sequence[RouterReply[dict[str, Any]]], applied: int) -> str:
    silence = admin_client.describe_missing(words)
    if silence:
        return silence
    if applied < len(words):
        return f"{len(words) - applied} of {len(words)} routers do not run the canary yet."
    return ""


def _add_point(canary: Canary, result: CanaryResult) -> None:
    """Append the result if requests came since the last one; long histories become coarser."""
    requests = sum(result.arms[name].requests for name in ARMS)
    history = canary.history
    if history and history[-1]["requests"] == requests:
        return
    history.append(
        {
            "at": round(timezone.now().timestamp(), 1),
            "requests": requests,
            "sessions": sum(result.arms[name].sessions for name in ARMS),
            "intervals": {
                name: None
                if interval is None
                else [interval.difference, interval.low, interval.high]
                for name, interval in result.intervals.items()
            },
            "arms": {name: result.arms[name].data() for name in ARMS},
        }
    )
    if len(history) > MAX_POINTS:
        del history[1:-1:2]
