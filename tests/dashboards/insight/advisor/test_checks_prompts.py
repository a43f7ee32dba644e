"""Outcomes of cache salts, a field of the endpoint, and of prompt layouts, which callers change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.audit.models import AuditEvent
from dashboards.insight.advisor import checks, layout_checks
from dashboards.insight.advisor.formulas.layouts import LayoutUse, judge_layout, measure_layout
from dashboards.insight.advisor.formulas.outcome import CAME, MISSED, NOT_APPLIED, UNTOLD, WAITING
from dashboards.insight.advisor.models import Advice
from dashboards.insight.traces.trace import TraceRequest
from endpoints.router.selectors import RouterReplies
from routing.analysis.misses import MissTotals, TemplateTotals
from tests.dashboards.insight.advisor.conftest import MISSES
from tests.dashboards.insight.advisor.test_checks import Recording, apply, check, recording
from tests.support.console import browser, program

__all__ = ["recording"]
BEFORE = LayoutUse(500, 500, 400_000)
PROMISED = 600.0


# -- salts


def more_hits(one: TraceRequest, share: float) -> TraceRequest:
    cached = (one.cached_tokens or 0) + int(share * one.prompt_tokens)
    return replace(one, cached_tokens=min(cached, one.prompt_tokens))


@pytest.mark.parametrize(("share", "verdict"), [(0.08, CAME), (0.0, MISSED)])
def test_shared_salts_are_checked_by_the_hit_rate(
    finished: Advice, recording: Recording, share: float, verdict: str
) -> None:
    misses = {**MISSES, "prompt": 1_000_000}  # 5.5 to 11 points
    Advice.objects.update(facts={**finished.facts, "misses": misses})
    requests = [more_hits(one, share) for one in recording.before.requests]
    recording.after = replace(recording.before, requests=requests, isolation="group")
    apply(routing={"cache_isolation": "group"})
    one = check()
    assert (one["key"], one["verdict"]) == ("salts", verdict), one["text"]
    assert "promised +11.0 points (+5.5 to +11.0)" in one["text"]
    assert "Taken off as the effect of other requests" in one["text"]


# -- layouts


def totals(changed: int, prefix: int = 0, again: int = 0) -> MissTotals:
    """Sums of a template: prompts with the early change, and with the prefix of its new layout."""
    found = MissTotals(requests=changed + prefix)
    if changed:
        causes = Counter(changed_timestamp=800 * changed)
        found.templates["ab12"] = TemplateTotals(changed, 0, causes, prefixes={"new"})
    found.prefix_requests["new"] = prefix
    found.prefixes["new"] = Counter(evicted_device=again, first_seen=90 * prefix)
    return found


def test_tokens_that_are_computed_again_count_and_new_ones_do_not() -> None:
    assert measure_layout(totals(0, 200, 1000), "ab12", ["new"]) == LayoutUse(200, 0, 1000)
    assert measure_layout(totals(3, 200), "ab12", []) == LayoutUse(200, 3, 2400)
    assert measure_layout(totals(0, 200), "ab12", []) == LayoutUse(0, 0, 0), "not known"


@pytest.mark.parametrize(
    ("windows", "verdict", "text"),
    [
        ([(20, 20, 16_000)], NOT_APPLIED, "20 requests of this template since the advice; 100 are"),
        ([(0, 0, 0), (40, 0, 0)], WAITING, "40 requests of this template"),
        ([(20, 0, 0), (400, 400, 320_000)], NOT_APPLIED, "800 tokens per request"),
        ([(400, 100, 80_000)], WAITING, "100 prompts still change early"),
        ([(400, 2, 2_000), (900, 400, 320_000)], CAME, "5 tokens per request computed because"),
        ([(400, 0, 120_000)], MISSED, "800 at the time of the advice (500 requests); at least 600"),
    ],
)
def test_the_shortest_time_with_enough_requests_decides(
    windows: list[tuple[int, int, int]], verdict: str, text: str
) -> None:
    found = judge_layout(BEFORE, PROMISED, [LayoutUse(*one) for one in windows])
    assert (found.verdict, text in found.text) == (verdict, True), found.text


class Ledger:
    """Sums of the routers by hour after the advice; the hour of the advice is the first one."""

    def __init__(self) -> None:
        self.hours: list[MissTotals] = []
        self.note = ""
        self.began = 0.0

    def answer(self, _endpoint: Any, starts: list[float]) -> RouterReplies[list[MissTotals]]:
        return RouterReplies([self.sums(start) for start in starts], note=self.note)

    def sums(self, start: float) -> MissTotals:
        found = MissTotals()
        for one in self.hours[max(int((start - self.began) / 3600), 0) :]:
            found.prefix_requests += one.prefix_requests
            for prefix, tokens in one.prefixes.items():
                found.prefixes[prefix] = found.prefixes.get(prefix, Counter()) + tokens
            for code, template in one.templates.items():
                into = found.templates.setdefault(code, TemplateTotals())
                into.requests += template.requests
                into.causes += template.causes
                into.prefixes |= template.prefixes
        return found


@pytest.fixture
def watched(finished: Advice) -> Advice:
    template = {**MISSES["templates"][0], "prefixes": ["old"], "use": BEFORE_USE}
    misses = {**MISSES, "templates": [template]}
    at = layout_checks.first_check(finished.created_at)
    Advice.objects.update(facts={**finished.facts, "misses": misses}, layouts_at=at)
    return Advice.objects.get()


BEFORE_USE = {"requests": 500, "changed": 500, "tokens": 400_000}


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch, watched: Advice) -> Ledger:
    found = Ledger()
    hour = layout_checks.first_check(watched.created_at) - timedelta(hours=1)
    found.began = hour.timestamp()
    monkeypatch.setattr(layout_checks.routing, "miss_windows", found.answer)
    return found


def after(advice: Advice, hours: float) -> datetime:
    return layout_checks.first_check(advice.created_at) + timedelta(hours=hours)


def layout(advice: Advice) -> dict[str, Any]:
    return dict(Advice.objects.get(pk=advice.pk).applied["layout=ab12"])


def test_a_corrected_layout_is_confirmed_from_the_ledger(watched: Advice, ledger: Ledger) -> None:
    assert not checks.has_work(), "the hour of the advice is not over"
    ledger.hours = [totals(100), totals(300)]
    checks.check_all(after(watched, 0.99))
    one = layout(watched)
    assert (one["verdict"], one["at"]) == (NOT_APPLIED, None)
    assert "800 tokens per request" in one["text"]
    assert not AuditEvent.objects.filter(verb="advice.check").exists()
    page = browser("viewer").get("/advisor/endpoints/demo/").content.decode()
    assert "Not applied yet" in page and "Prompt template ab12 → stable part first" in page
    (shown,) = program("viewer").get("/api/v1/endpoints/demo/advice/").json()["applied"]
    assert (shown["label"], shown["by"]) == ("Not applied yet", "")

    ledger.hours += [totals(150, 150)]  # corrected within this hour
    checks.check_all(after(watched, 1.9))
    assert layout(watched)["verdict"] in (NOT_APPLIED, WAITING)
    ledger.hours += [totals(0, 300)]
    checks.check_all(after(watched, 2.9))
    one = layout(watched)
    assert one["verdict"] == CAME, one["text"]
    assert one["text"].startswith("0 tokens per request computed because of an early change or")
    assert AuditEvent.objects.get(verb="advice.check").changes["verdict"] == CAME
    assert Advice.objects.get(pk=watched.pk).layouts_at is None
    (shown,) = program("viewer").get("/api/v1/endpoints/demo/advice/").json()["applied"]
    assert (shown["label"], shown["by"]) == ("Gain came", "callers")
    assert not {"use", "prefixes"} & shown.keys()


def test_a_template_that_callers_no_longer_send_is_no_gain(watched: Advice, ledger: Ledger) -> None:
    ledger.hours = [totals(100), MissTotals()]
    checks.check_all(after(watched, 0.9))
    assert layout(watched)["verdict"] == WAITING
    checks.check_all(after(watched, 24 * 8))
    one = layout(watched)
    assert one["verdict"] == UNTOLD
    assert "0 requests of this template since the advice" in one["text"]
    assert Advice.objects.get(pk=watched.pk).layouts_at is None


def test_sums_without_all_routers_are_not_judged(watched: Advice, ledger: Ledger) -> None:
    ledger.hours, ledger.note = [totals(0), totals(0, 300)], "1 of 2 routers did not respond."
    checks.check_all(after(watched, 0.9))
    one = layout(watched)
    assert (one["verdict"], one["text"]) == (NOT_APPLIED, "No answer of the routers yet.")
    assert Advice.objects.get(pk=watched.pk).layouts_at == after(watched, 1)
    assert timezone.now() < after(watched, 1)
