"""Check by the miss ledger whether callers applied advised prompt layouts, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from dashboards.insight.advisor import selectors
from dashboards.insight.advisor.formulas import layouts, outcome
from dashboards.insight.advisor.formulas.gains import ADVISED, AdviceRow
from dashboards.insight.advisor.models import Advice
from endpoints.router import selectors as routing
from routing.analysis.misses import MissTotals
from routing.engine.misses.sums import HOURS_KEPT

WATCHED = timedelta(days=7)
_HOUR = timedelta(hours=1)
_MAX_PREFIXES = 50
_OPEN = (outcome.NOT_APPLIED, outcome.WAITING)


def first_check(created_at: datetime) -> datetime:
    """Return the end of the hour, since the ledger has sums of whole hours."""
    return created_at.replace(minute=0, second=0, microsecond=0) + _HOUR


def check_layouts(advice: Advice, now: datetime) -> None:
    """Update the entries of `advice.applied`, and set `advice.layouts_at` to the next check."""
    templates = {
        f"layout={template['code']}": template for template in advice.facts["misses"]["templates"]
    }
    for row in selectors.list_prompt_changes(advice):
        if row.verdict == ADVISED and "use" in templates.get(row.key, {}):
            entry = _entry(advice, row, templates[row.key])
            advice.applied.setdefault(row.key, entry)
    watched = [
        entry for entry in advice.applied.values() if "use" in entry and entry["verdict"] in _OPEN
    ]
    first = first_check(advice.created_at)
    hours = range(min(int((now - first) / _HOUR), HOURS_KEPT - 1) + 1)
    latest = int(now.timestamp()) // 3600 * 3600
    starts = [float(latest - 3600 * hour) for hour in hours]
    if watched:
        # The hour of the advice may have the first prompt of the new layout, but is not counted.
        replies = routing.miss_windows(advice.endpoint, [*starts, starts[-1] - 3600])
        if not replies.error and not replies.note:
            for advice_entry in watched:
                _judge(advice_entry, replies.found, now)
    if now >= advice.created_at + WATCHED:
        for advice_entry in watched:
            if advice_entry["verdict"] in _OPEN:
                ended = layouts.end_watch(
                    outcome.Verdict(advice_entry["verdict"], advice_entry["text"])
                )
                advice_entry["verdict"], advice_entry["text"] = ended.verdict, ended.text
    is_open = any(entry["verdict"] in _OPEN for entry in watched)
    advice.layouts_at = first_check(now) if is_open else None


def _entry(advice: Advice, row: AdviceRow, template: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "key": row.key,
        "change": selectors.describe_changes(row),
        "revision": advice.generation,
        "at": None,
        "verdict": outcome.NOT_APPLIED,
        "text": "No answer of the routers yet.",
        "prefixes": template["prefixes"],
        "use": template["use"],
        "promised": template["saved"] / max(template["use"]["requests"], 1),
    }


def _judge(one: dict[str, Any], windows: Sequence[MissTotals], now: datetime) -> None:
    code = one["key"].removeprefix("layout=")
    template = windows[-1].templates.get(code)
    prefixes = [*one["prefixes"], *sorted(template.prefixes if template else ())]
    one["prefixes"] = list(dict.fromkeys(prefixes))[-_MAX_PREFIXES:]
    uses = [layouts.measure_layout(totals, code, one["prefixes"]) for totals in windows[:-1]]
    before = layouts.LayoutUse(**one["use"])
    layout = layouts.judge_layout(before, one["promised"], uses)
    one["verdict"], one["text"] = layout.verdict, layout.text
    if layout.verdict != outcome.NOT_APPLIED and one["at"] is None and uses[-1].requests:
        one["at"] = now.isoformat()
