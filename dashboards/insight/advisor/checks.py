"""Detect applied advice in the endpoint's configurations, and check whether its gain came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from cachetier import selectors as cache_tiers
from console.audit.record import record
from dashboards.insight.advisor import layout_checks, selectors
from dashboards.insight.advisor.formulas import gains, outcome
from dashboards.insight.advisor.formulas.prompts import SALTS
from dashboards.insight.advisor.models import Advice
from dashboards.insight.advisor.timeline import (
    AdvisedChange,
    TimedConfiguration,
    find_applications,
    list_advised_changes,
    list_configurations,
    list_differences,
)
from dashboards.insight.traces.records import BLOCK_TOKENS
from dashboards.insight.traces.storage import count_requests, load_trace
from dashboards.insight.traces.trace import Trace, TraceError
from dashboards.insight.whatif import inputs
from dashboards.insight.whatif.model.drift import simulate_requests

KEPT_OPEN = timedelta(days=30)
SETTLE = timedelta(minutes=10)  # rollout and cold caches
LONGEST = timedelta(days=1)
MAX_REQUESTS = 5000  # before and after: they are replayed within a task
_FINAL = (outcome.CAME, outcome.MISSED, outcome.UNTOLD)


def _open_advice(now: datetime) -> QuerySet[Advice]:
    due = Q(endpoint__generation__gt=F("checked_generation")) | Q(waiting=True)
    due |= Q(layouts_at__lte=now)
    for tier, generation in cache_tiers.tier_generations().items():
        due |= Q(facts__l2__tier=tier) & ~Q(checked_tier_generation=generation)
    rows = Advice.objects.filter(due, run__state="done")
    return rows.filter(created_at__gt=now - KEPT_OPEN)


def has_work() -> bool:
    return _open_advice(timezone.now()).exists()


def check_all(now: datetime) -> None:
    related = ("endpoint", "run", "run__endpoint", "run__started_by")
    for advice in _open_advice(now).select_related(*related):
        _check(advice, now)


def _check(advice: Advice, now: datetime) -> None:
    generation = advice.endpoint.generation
    tiers = cache_tiers.tier_generations()
    tier = (advice.facts["l2"] or {}).get("tier", "")
    before = {key: entry["verdict"] for key, entry in advice.applied.items()}
    configurations = list_configurations(advice)
    _detect(advice, configurations)
    for entry in advice.applied.values():
        if _is_compared(entry):
            _compare(advice, entry, configurations, now)
    if advice.layouts_at is not None and advice.layouts_at <= now:
        layout_checks.check_layouts(advice, now)
    with transaction.atomic():
        Advice.objects.filter(pk=advice.pk).update(
            applied=advice.applied,
            checked_generation=generation,
            checked_tier_generation=tiers.get(tier, 0),
            layouts_at=advice.layouts_at,
            waiting=any(_is_compared(entry) for entry in advice.applied.values()),
        )
        for key, entry in advice.applied.items():
            if entry["verdict"] in _FINAL and entry["verdict"] != before.get(key):
                summary = {name: entry[name] for name in ("change", "revision", "verdict", "text")}
                record(None, "advice.check", f"endpoint/{advice.endpoint.name}", summary)


def _is_compared(one: Mapping[str, Any]) -> bool:
    """Return True for a row that waits for recorded requests, not for the miss ledger."""
    return one["verdict"] == outcome.WAITING and "use" not in one


def _detect(advice: Advice, configurations: Sequence[TimedConfiguration]) -> None:
    """Remember the row that each new configuration applied."""
    listed = frozenset(row.key for row in gains.choose_rows(selectors.list_replayed(advice)))
    seen_changes = {(entry["revision"], entry["at"]) for entry in advice.applied.values()}
    changes = [
        advised_change
        for advised_change in list_advised_changes(advice)
        if advised_change.row.key not in advice.applied
    ]
    for applied_at, change in find_applications(changes, configurations, listed):
        now = configurations[applied_at]
        if (now.revision, now.at.isoformat()) not in seen_changes:
            advice.applied[change.row.key] = _entry(advice, change, configurations[0], now)


def _entry(
    advice: Advice, change: AdvisedChange, surveyed: TimedConfiguration, now: TimedConfiguration
) -> dict[str, Any]:
    row = change.row
    before = outcome.summarize(_trace(advice, advice.run.begin, advice.run.end).requests)
    promise = {"ttft_p50_s": row.ttft_p50, "ttft_p90_s": row.ttft_p90, "hit_rate": row.hit_rate}
    return {
        "key": row.key,
        "change": selectors.describe_changes(row),
        "revision": now.revision,
        "tier": now.tier,
        "at": now.at.isoformat(),
        "others": list_differences(surveyed.flat, now.flat, change),
        "size": change.describe_size(now),
        "promise": {
            name: asdict(estimate) for name, estimate in promise.items() if estimate is not None
        },
        "bill": row.bill,
        "exact_money": bool(row.bill and row.bill < 0 and row.money and row.money.low > 0),
        "verdict": outcome.WAITING,
        "text": f"Waiting for as many requests as the advice had ({before['requests']:,}), counted "
        f"from {SETTLE.seconds // 60} minutes after the change, at most a day.",
        "measured": {},
        "before": before,
    }


def _trace(advice: Advice, begin: datetime, end: datetime) -> Trace:
    """Return the newest recorded requests of a period; none if the recording is damaged."""
    try:
        trace = load_trace(advice.endpoint, begin, end)
    except TraceError:
        return Trace(BLOCK_TOKENS, [])
    left_out = max(len(trace.requests) - MAX_REQUESTS, 0)
    return replace(trace, requests=trace.requests[left_out:])


def _compare(
    advice: Advice, one: dict[str, Any], configurations: Sequence[TimedConfiguration], now: datetime
) -> None:
    applied_at = parse_datetime(one["at"])
    assert applied_at is not None
    begin = applied_at + SETTLE
    before = one["before"]
    following = _next_change(one, configurations)
    end = min(now, begin + LONGEST, following or now)
    count = count_requests(advice.endpoint, begin, end) if end > begin else 0
    due = count >= before["requests"] or end < now or now >= begin + LONGEST
    if not due and not one["others"] and "figures" in before:
        return
    if one["others"]:
        fields = ", ".join(one["others"])
        _end(one, outcome.UNTOLD, f"Since the advice, {fields} changed too.")
        return
    if "figures" not in before:
        _end(one, outcome.UNTOLD, "The recording that the advice used was deleted.")
        return
    after = outcome.summarize(_trace(advice, begin, end).requests, seed=1)
    if "figures" not in after:
        why = f"Only {after['timed']} requests with a TTFT were recorded after the change"
        ended = ", before the next change of the configuration" if following else ""
        _end(one, outcome.UNTOLD, f"{why}{ended}; {outcome.MIN_REQUESTS} are needed.")
        return
    measured = outcome.measure_changes(before, after)
    one["measured"] = {name: asdict(change) for name, change in measured.items()}
    mix = outcome.describe_mix(before, after)
    if mix:
        _end(one, outcome.UNTOLD, f"The traffic changed: {mix}.")
        return
    expected = _expect(advice, one["key"], begin, end)
    correction = "Not corrected for the effect of other requests."
    if expected:
        drift = outcome.measure_changes(*expected)
        measured = outcome.measure_changes(before, after, expected)
        one["drift"] = {name: change.value for name, change in drift.items()}
        correction = outcome.describe_drift(drift)
    promise = {name: gains.Estimate(**change) for name, change in one["promise"].items()}
    verdict = outcome.judge_change(promise, measured, one["exact_money"])
    _end(one, verdict.verdict, f"{one.get('size', '')}{verdict.text} {correction}")


def _expect(
    advice: Advice, key: str, begin: datetime, end: datetime
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the requests before and after as the survey's model answers them without the change;
    None if unknown.
    """
    result, present = advice.run.result, advice.run.present
    if result["backtest"]["refusal"]:
        return None
    before, after = _trace(advice, advice.run.begin, advice.run.end), _trace(advice, begin, end)
    if key == SALTS and not after.isolation:
        return None  # prompts that share now cannot be told apart
    limits = inputs.engine_limits(advice.endpoint.parsed)
    values = {**present, "device_tokens": result["device_tokens"]}
    constants = {
        name: constant["value"] for name, constant in result["calibration"]["constants"].items()
    }
    configuration = inputs.make_configuration(values, limits)
    simulated = simulate_requests(before, after, configuration, constants)
    old, new = (outcome.summarize(replay, seed) for seed, replay in enumerate(simulated))
    return (old, new) if "figures" in old and "figures" in new else None


def _next_change(
    one: Mapping[str, Any], configurations: Sequence[TimedConfiguration]
) -> datetime | None:
    """Return when a later configuration changed what requests meet."""
    applied = next(
        (
            index
            for index, now in enumerate(configurations)
            if (now.revision, now.at.isoformat()) == (one["revision"], one["at"])
        ),
        None,
    )
    if applied is None:
        return None
    flat = configurations[applied].flat
    later = configurations[applied + 1 :]
    return next((now.at for now in later if list_differences(flat, now.flat)), None)


def _end(one: dict[str, Any], verdict: str, text: str) -> None:
    one["verdict"], one["text"] = verdict, text
    one["before"] = {name: one["before"].get(name) for name in ("requests", "figures", "mix")}
