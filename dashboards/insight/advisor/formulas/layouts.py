"""Prompt layouts before and after their callers change them, by the sums of the miss ledger. Pure.

A template is known by its early change while its prompts have one, and after that by the prefixes
of its last prompts with one: the first prompt of a corrected layout is one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dashboards.insight.advisor.formulas.outcome import (
    CAME,
    MISSED,
    NOT_APPLIED,
    UNTOLD,
    WAITING,
    Verdict,
)
from routing.analysis.misses import MissTotals, TemplateTotals
from routing.engine.misses import attribution as causes

MIN_REQUESTS = 100  # of the template, after the change
_APPLIED = 0.5  # of the share of early changes at the advice
_REST = 0.05  # of that share: prompts of a part of an hour, or of callers not yet changed
_AVOIDABLE = (
    *(causes.PLACED_LOAD, causes.PLACED_DOWN, causes.PLACED_PINNED, causes.PLACED_STRATEGY),
    *(causes.PLACED_ROUTER, causes.IN_FLIGHT, causes.INDEX_STALE, causes.EXPIRED_L2),
    *(causes.EVICTED_DEVICE, causes.EVICTED_L1, causes.EVICTED_L2, causes.EVICTED_UNKNOWN),
    *(causes.LOST_RESTART, causes.LOST_ROLLOUT, causes.LOST_SCALE_DOWN, causes.LOST_RESET),
)


@dataclass(frozen=True, slots=True)
class LayoutUse:
    """Use of a prompt layout. `changed`: requests with the early change. `tokens`: computed because
    of it, or again though they had been cached.
    """

    requests: int
    changed: int
    tokens: int

    @property
    def changed_share(self) -> float:
        return self.changed / max(self.requests, 1)

    @property
    def tokens_each(self) -> float:
        return self.tokens / max(self.requests, 1)


def measure_layout(totals: MissTotals, code: str, prefixes: Iterable[str]) -> LayoutUse:
    template = totals.templates.get(code, TemplateTotals())
    all_prefixes = template.prefixes.union(prefixes)
    sums = [totals.prefixes[prefix] for prefix in all_prefixes if prefix in totals.prefixes]
    again = sum(causes[cause] for causes in sums for cause in _AVOIDABLE)
    requests = max(
        sum(totals.prefix_requests[prefix] for prefix in all_prefixes), template.requests
    )
    return LayoutUse(requests, template.requests, template.tokens + again)


def judge_layout(before: LayoutUse, promised: float, windows: Sequence[LayoutUse]) -> Verdict:
    """`promised`: fewer computed tokens per request. `windows`: sums up to now, the shortest first;
    the shortest one with enough requests counts.
    """
    after = next((window for window in windows if window.requests >= MIN_REQUESTS), None)
    if after is None:
        most = max((window.requests for window in windows), default=0)
        verdict = WAITING if not any(window.changed for window in windows) else NOT_APPLIED
        return Verdict(
            verdict,
            f"{most:,} requests of this template since the advice; {MIN_REQUESTS} are needed.",
        )
    sentence = (
        f"{after.tokens_each:,.0f} tokens per request computed because of an early change or again "
        f"({after.requests:,} requests), {before.tokens_each:,.0f} at the time of the advice "
        f"({before.requests:,} requests)"
    )
    if after.changed_share > _APPLIED * before.changed_share:
        return Verdict(NOT_APPLIED, f"{sentence}.")
    if after.changed_share > _REST * before.changed_share:
        return Verdict(
            WAITING,
            f"{sentence}; {after.changed:,} prompts still change early. Waiting for an hour "
            "without them.",
        )
    text = f"{sentence}; at least {promised:,.0f} fewer were promised."
    fewer = before.tokens_each - after.tokens_each
    return Verdict(CAME if fewer >= promised else MISSED, text)


def end_watch(last: Verdict) -> Verdict:
    """Return the final verdict of a layout without one."""
    if last.verdict == NOT_APPLIED:
        return Verdict(UNTOLD, f"Not applied within the time it is checked. {last.text}")
    return Verdict(
        UNTOLD, f"{last.text} Its callers changed or ended, or routers restarted and began anew."
    )
