"""Detect applied advice in the endpoint's revisions, and check whether its gain came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from console.audit.record import record
from dashboards.advisor import selectors
from dashboards.advisor.formulas import gains, outcome
from dashboards.advisor.formulas.gains import AdviceRow
from dashboards.advisor.models import Advice
from endpoints import selectors as endpoints
from endpoints.models import Revision
from endpoints.spec.endpoint_spec import flatten
from routing.traces.records import BLOCK_TOKENS
from routing.traces.storage import count_requests, load_trace
from routing.traces.trace import Trace, TraceError
from routing.whatif import inputs
from routing.whatif.model.drift import simulate_requests

KEPT_OPEN = timedelta(days=30)
SETTLE = timedelta(minutes=10)  # rollout and cold caches
LONGEST = timedelta(days=1)
MAX_REQUESTS = 5000  # before and after: they are replayed within a task
_HARMLESS = ("routing.record_", "tags", "manifest")


def _open_advice(now: datetime) -> QuerySet[Advice]:
    changed = Q(endpoint__generation__gt=F("checked_generation"))
    rows = Advice.objects.filter(changed | Q(waiting=True), run__state="done")
    return rows.filter(created_at__gt=now - KEPT_OPEN)


def has_work() -> bool:
    return _open_advice(timezone.now()).exists()


def check_all(now: datetime) -> None:
    related = ("endpoint", "run", "run__endpoint", "run__started_by")
    for advice in _open_advice(now).select_related(*related):
        _check(advice, now)


def _check(advice: Advice, now: datetime) -> None:
    generation = advice.endpoint.generation
    found = endpoints.revisions(advice.endpoint).filter(number__gte=advice.generation)
    revisions = list(found.order_by("number"))
    before = {key: one["verdict"] for key, one in advice.applied.items()}
    _detect(advice, revisions)
    for one in advice.applied.values():
        if one["verdict"] == outcome.WAITING:
            _compare(advice, one, revisions, now)
    with transaction.atomic():
        Advice.objects.filter(pk=advice.pk).update(
            applied=advice.applied,
            checked_generation=generation,
            waiting=any(one["verdict"] == outcome.WAITING for one in advice.applied.values()),
        )
        for key, one in advice.applied.items():
            if one["verdict"] not in (outcome.WAITING, before.get(key)):
                facts = {name: one[name] for name in ("change", "revision", "verdict", "text")}
                record(None, "check advice", f"endpoint/{advice.endpoint.name}", facts)


def _detect(advice: Advice, revisions: Sequence[Revision]) -> None:
    """Remember the row that each new revision applied: of several, that with the most fields."""
    rows = selectors.list_replayed(advice)
    listed = {row.key for row in gains.choose_rows(rows)}
    wanted = {
        row.key: (row, selectors.list_spec_changes(advice, row))
        for row in rows
        if row.verdict in (gains.ADVISED, gains.TRADE_OFF)
    }
    known = {one["revision"] for one in advice.applied.values()}
    flat = [flatten(revision.spec) for revision in revisions]
    for at in range(1, len(flat)):
        if revisions[at].number in known:
            continue
        found = [
            (len(changes), key in listed, key)
            for key, (_, changes) in wanted.items()
            if key not in advice.applied
            and _has(flat[at], changes)
            and not _has(flat[at - 1], changes)
        ]
        if found:
            row, changes = wanted[max(found)[2]]
            entry = _entry(advice, row, revisions[at], flat[at - 1], flat[at], changes)
            advice.applied[row.key] = entry


def _has(flat: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return bool(wanted) and all(flat.get(path) == value for path, value in wanted.items())


def _entry(
    advice: Advice,
    row: AdviceRow,
    revision: Revision,
    earlier: Mapping[str, Any],
    now: Mapping[str, Any],
    wanted: Mapping[str, Any],
) -> dict[str, Any]:
    others = _differences(earlier, now, wanted)
    before = outcome.summarize(_trace(advice, advice.run.begin, advice.run.end).requests)
    promise = {
        "ttft_p50_s": row.ttft_p50,
        "ttft_p90_s": row.ttft_p90,
        "hit_rate": row.hit_rate,
    }
    return {
        "key": row.key,
        "change": selectors.describe_changes(row),
        "revision": revision.number,
        "at": revision.created_at.isoformat(),
        "others": others,
        "promise": {name: _estimate(one) for name, one in promise.items() if one is not None},
        "bill": row.bill,
        "exact_money": row.kind == "replicas" and row.money is not None and row.money.low > 0,
        "verdict": outcome.WAITING,
        "text": f"Waiting for as many requests as the advice had ({before['requests']:,}), counted "
        f"from {SETTLE.seconds // 60} minutes after the change, at most a day.",
        "measured": {},
        "before": before,
    }


def _estimate(one: Any) -> dict[str, float]:
    return {"value": one.value, "low": one.low, "high": one.high}


def _differences(
    earlier: Mapping[str, Any], now: Mapping[str, Any], wanted: Mapping[str, Any]
) -> list[str]:
    return sorted(
        path
        for path in earlier.keys() | now.keys()
        if earlier.get(path) != now.get(path)
        and path not in wanted
        and not path.startswith(_HARMLESS)
    )


def _trace(advice: Advice, begin: datetime, end: datetime) -> Trace:
    """Return the newest recorded requests of a period; none if the recording is damaged."""
    try:
        found = load_trace(advice.endpoint, begin, end)
    except TraceError:
        return Trace(BLOCK_TOKENS, [])
    left_out = max(len(found.requests) - MAX_REQUESTS, 0)
    return replace(found, requests=found.requests[left_out:])


def _compare(
    advice: Advice, one: dict[str, Any], revisions: Sequence[Revision], now: datetime
) -> None:
    applied_at = parse_datetime(one["at"])
    assert applied_at is not None
    begin = applied_at + SETTLE
    before = one["before"]
    following = _next_change(one["revision"], revisions)
    end = min(now, begin + LONGEST, following or now)
    count = count_requests(advice.endpoint, begin, end) if end > begin else 0
    due = count >= before["requests"] or end < now or now >= begin + LONGEST
    if not due and not one["others"] and "figures" in before:
        return
    if one["others"]:
        fields = ", ".join(one["others"])
        _end(one, outcome.UNTOLD, f"Revision {one['revision']} also changed {fields}.")
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
    one["measured"] = {name: _estimate(change) for name, change in measured.items()}
    mix = outcome.describe_mix(before, after)
    if mix:
        _end(one, outcome.UNTOLD, f"The traffic changed: {mix}.")
        return
    expected = _expect(advice, begin, end)
    correction = "Not corrected for the effect of other requests."
    if expected:
        drift = outcome.measure_changes(*expected)
        measured = outcome.measure_changes(before, after, expected)
        one["drift"] = {name: change.value for name, change in drift.items()}
        correction = outcome.describe_drift(drift)
    promise = {name: gains.Estimate(**change) for name, change in one["promise"].items()}
    found = outcome.judge_change(promise, measured, one["exact_money"])
    _end(one, found.verdict, f"{found.text} {correction}")


def _expect(
    advice: Advice, begin: datetime, end: datetime
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Return the requests before and after as the survey's model answers them without the change;
    None if unknown.
    """
    result, present = advice.run.result, advice.run.present
    before, after = _trace(advice, advice.run.begin, advice.run.end), _trace(advice, begin, end)
    limits = inputs.engine_limits(advice.endpoint.parsed)
    values = {**present, "device_tokens": result["device_tokens"]}
    constants = {name: one["value"] for name, one in result["calibration"]["constants"].items()}
    configuration = inputs.make_configuration(values, limits)
    simulated = simulate_requests(before, after, configuration, constants)
    old, new = (outcome.summarize(one, seed) for seed, one in enumerate(simulated))
    return (old, new) if "figures" in old and "figures" in new else None


def _next_change(number: int, revisions: Sequence[Revision]) -> datetime | None:
    """Return when a later revision changed what requests meet."""
    specs = {one.number: flatten(one.spec) for one in revisions}
    for one in revisions:
        if one.number > number and _differences(specs[number], specs[one.number], {}):
            return one.created_at
    return None


def _end(one: dict[str, Any], verdict: str, text: str) -> None:
    one["verdict"], one["text"] = verdict, text
    one["before"] = {name: one["before"].get(name) for name in ("requests", "figures", "mix")}
