"""Tests of the run of an analysis: claim, result, cancellation, failure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command
from django.utils import timezone

from console.accounts.models import Team
from dashboards.insight.traces.trace import Trace
from dashboards.insight.whatif import actions, lifecycle
from dashboards.insight.whatif.management.commands import run_whatif
from dashboards.insight.whatif.models import WhatIf
from endpoints.models import Endpoint
from endpoints.runs import RunState
from tests.dashboards.insight.whatif.recorded_traffic import recorded_traffic
from tests.support.console import person


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Analyses whose process was started; none is."""
    found: list[UUID] = []
    monkeypatch.setattr(lifecycle, "_spawn", found.append)
    return found


def test_an_analysis_ends_with_its_figures(finished: WhatIf) -> None:
    assert (finished.state, finished.share, finished.message) == (RunState.DONE, 1.0, "")
    result = finished.result
    assert result["requests"] == 300
    assert result["backtest"]["refusal"] == ""
    assert result["change"]["ttft_p90_s"]["value"] > 0  # two replicas instead of three


def test_one_analysis_runs_at_a_time(queued: WhatIf, started: list[UUID]) -> None:
    other = WhatIf.objects.get(pk=queued.pk)
    other.pk = None
    other.id = UUID(int=1)
    other.created_at = queued.created_at + timedelta(seconds=1)
    other.save()
    for _ in range(3):
        lifecycle.sweep()
    assert started == [queued.pk]
    WhatIf.objects.filter(pk=queued.pk).update(state=RunState.DONE)
    lifecycle.sweep()
    assert started == [queued.pk, other.pk]


def test_teams_take_turns(queued: WhatIf, started: list[UUID]) -> None:
    rows = []
    for number, name in enumerate(("many", "many", "many", "few")):
        team = Team.objects.get_or_create(slug=name, defaults={"name": name})[0]
        endpoint = Endpoint.objects.get_or_create(name=name, defaults={"team": team, "spec": {}})[0]
        row = WhatIf.objects.get(pk=queued.pk)
        row.pk = row.id = UUID(int=number + 1)
        row.endpoint = endpoint
        row.created_at = queued.created_at + timedelta(seconds=number)
        row.save(force_insert=True)
        rows.append(row.pk)
    queued.delete()
    for _ in rows:
        lifecycle.sweep()
        WhatIf.objects.filter(state=RunState.RUNNING).update(state=RunState.DONE)
    assert started == [rows[0], rows[3], rows[1], rows[2]]


def test_an_analysis_that_takes_too_long_fails_and_ends(
    queued: WhatIf, started: list[UUID]
) -> None:
    WhatIf.claim(queued.pk)
    report = lifecycle._Reporter(queued.pk)
    report(0.1, "Replaying")
    early = timezone.now() - lifecycle.LONGEST
    WhatIf.objects.filter(pk=queued.pk).update(started_at=early)
    lifecycle.sweep()
    queued.refresh_from_db()
    assert queued.state == RunState.FAILED
    assert "30 minutes. Choose fewer hours" in queued.message
    report._last -= lifecycle.REPORT_S
    with pytest.raises(lifecycle._CancelledError):
        report(0.2, "Replaying")
    assert not started


def test_a_claim_succeeds_once(queued: WhatIf) -> None:
    assert WhatIf.claim(queued.pk)
    assert not WhatIf.claim(queued.pk)


@pytest.mark.parametrize("clock", [-2, 1000])  # behind, or ahead: by a clock that was corrected
def test_a_silent_analysis_fails(queued: WhatIf, started: list[UUID], clock: int) -> None:
    WhatIf.claim(queued.pk)
    late = timezone.now() + clock * lifecycle.SILENT
    WhatIf.objects.filter(pk=queued.pk).update(touched_at=late)
    lifecycle.sweep()
    queued.refresh_from_db()
    assert queued.state == RunState.FAILED
    assert "Start the analysis again" in queued.message
    assert not lifecycle.has_work()


def test_a_running_analysis_is_cancelled(queued: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "REPORT_S", 0.0)
    WhatIf.claim(queued.pk)
    actions.cancel(person("operator"), queued)
    lifecycle.execute(queued.pk)
    queued.refresh_from_db()
    assert queued.state == RunState.CANCELLED
    assert queued.result == {}


def test_a_deleted_row_ends_its_process(queued: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "REPORT_S", 0.0)
    WhatIf.claim(queued.pk)

    def load(*_period: Any) -> Trace:
        WhatIf.objects.all().delete()
        return recorded_traffic(300)

    monkeypatch.setattr(lifecycle, "load_trace", load)
    lifecycle.execute(queued.pk)
    assert not WhatIf.objects.exists()
    lifecycle.execute(queued.pk)


def test_too_little_or_too_much_traffic_is_reported(
    queued: WhatIf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "load_trace", lambda *_period: Trace(64, []))
    WhatIf.claim(queued.pk)
    monkeypatch.setattr(run_whatif, "lower_priority", lambda: None)  # of the test process
    call_command("run_whatif", str(queued.pk))
    queued.refresh_from_db()
    assert "Record more traffic" in queued.message
    WhatIf.objects.filter(pk=queued.pk).update(state=RunState.QUEUED)
    monkeypatch.setattr(lifecycle, "load_trace", lambda *_period: recorded_traffic(300))
    monkeypatch.setattr(lifecycle, "MAX_REQUESTS", 200)
    WhatIf.claim(queued.pk)
    lifecycle.execute(queued.pk)
    queued.refresh_from_db()
    assert queued.state == RunState.FAILED
    assert "Choose a shorter period" in queued.message
