"""Applied advice: detection in the revisions, and the outcome by recorded requests."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.audit.models import AuditEvent
from dashboards.insight.advisor import checks
from dashboards.insight.advisor.formulas.outcome import CAME, MISSED, UNTOLD, WAITING
from dashboards.insight.advisor.models import Advice
from dashboards.insight.traces.trace import Trace
from endpoints import actions
from endpoints.models import Revision
from tests.dashboards.insight.advisor.conftest import HOUR
from tests.dashboards.insight.whatif.recorded_traffic import recorded_traffic
from tests.support.console import browser, person

APPLIED = timezone.now() - timedelta(hours=3)


class Recording:
    """Requests of the advice's hour, and those after the change."""

    def __init__(self) -> None:
        self.before = self.after = recorded_traffic(300)

    def load(self, _endpoint: Any, begin: datetime, _end: datetime) -> Trace:
        return self.before if begin <= HOUR else self.after

    def count(self, *period: Any) -> int:
        return len(self.load(*period).requests)

    def change(self, slower: float = 1.0, most: int = 300, longer: float = 1.0) -> None:
        requests = [
            replace(
                one,
                ttft_s=(one.ttft_s or 0.0) * slower,
                prompt_tokens=round(one.prompt_tokens * longer),
            )
            for one in self.before.requests[:most]
        ]
        self.after = replace(self.before, requests=requests)


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    found = Recording()
    monkeypatch.setattr(checks, "load_trace", found.load)
    monkeypatch.setattr(checks, "count_requests", found.count)
    return found


def apply(**changes: Any) -> None:
    """Change the endpoint, three hours ago."""
    made = actions.patch(person("operator"), "demo", changes)
    Revision.objects.filter(endpoint=made, number=made.generation).update(created_at=APPLIED)


def check(hours: float = 0.0) -> dict[str, Any]:
    checks.check_all(timezone.now() + timedelta(hours=hours))
    (one,) = Advice.objects.get().applied.values()
    return dict(one)


def test_a_revision_with_the_values_of_a_row_applies_it(
    finished: Advice, recording: Recording
) -> None:
    assert not checks.has_work()
    recording.change(most=20)
    apply(tags={"app": "search"})
    checks.check_all(timezone.now())
    assert Advice.objects.get().applied == {}
    apply(replicas=2)
    one = check()
    assert (one["key"], one["revision"], one["verdict"]) == ("replicas=2", 3, WAITING)
    assert one["promise"]["ttft_p90_s"]["high"] > one["promise"]["ttft_p90_s"]["low"] > 0
    assert f"({one['before']['requests']:,}), counted from 10 minutes after" in one["text"]
    assert checks.has_work()
    assert "Waiting" in browser("viewer").get("/advisor/endpoints/demo/").content.decode()


@pytest.mark.parametrize(
    ("change", "verdict", "text"),
    [
        ({"slower": 1.1}, CAME, "TTFT p90 +10 %"),
        ({"slower": 3.0}, MISSED, "Worse than promised: TTFT p50, TTFT p90."),
        ({"longer": 1.5}, UNTOLD, "The traffic changed: prompt tokens per request +50%."),
    ],
)
def test_the_gain_is_confirmed_refuted_or_unknown(
    finished: Advice, recording: Recording, change: dict[str, float], verdict: str, text: str
) -> None:
    recording.change(**change)  # type: ignore[arg-type]
    apply(replicas=2)
    one = check()
    assert (one["verdict"], text in one["text"]) == (verdict, True), one["text"]
    assert not checks.has_work()
    event = AuditEvent.objects.filter(verb="advice.check").get()
    assert event.changes["verdict"] == verdict
    assert one["change"] == "Replicas 3 → 2"
    assert ("Taken off as the effect of other requests" in one["text"]) == (verdict != UNTOLD)


def test_too_little_traffic_after_a_day_is_stated(finished: Advice, recording: Recording) -> None:
    recording.change(most=20)
    apply(replicas=2)
    assert check()["verdict"] == WAITING
    one = check(hours=24)
    assert one["verdict"] == UNTOLD
    assert "Only 20 requests with a TTFT" in one["text"]


def test_the_gain_of_a_revision_with_further_changes_is_unknown(
    finished: Advice, recording: Recording
) -> None:
    apply(replicas=2, worker_args=["--max-num-seqs=8"])
    one = check()
    assert (one["verdict"], one["text"]) == (UNTOLD, "Since the advice, worker_args changed too.")


def test_a_later_change_ends_the_comparison(finished: Advice, recording: Recording) -> None:
    recording.change(most=20)
    apply(replicas=2)
    apply(routing={"strategy": "session"})
    one = check()
    assert one["verdict"] == UNTOLD
    assert "before the next change of the configuration" in one["text"]


def test_a_deleted_recording_cannot_be_compared(finished: Advice, recording: Recording) -> None:
    recording.before = Trace(64, [])
    apply(replicas=2)
    assert "was deleted" in check()["text"]


def test_one_damaged_recording_does_not_stop_the_others(
    finished: Advice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_period: Any) -> Trace:
        raise checks.TraceError("damaged")

    monkeypatch.setattr(checks, "load_trace", fail)
    apply(replicas=2)
    assert check()["verdict"] == UNTOLD
