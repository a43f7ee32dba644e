"""Automatic calibration: Ready endpoints with idle workers, one at a time, bounded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.core import counters
from dashboards import auto_calibration, calibration_guard, endpoint_runs
from dashboards.auto_calibration import ATTEMPTS, DELAYS, find_due
from dashboards.benchmarks import load_plan
from dashboards.calibration_guard import EndpointLoad
from dashboards.calibration_switches import set_default, set_endpoint
from dashboards.costs.formulas.calibration import ROUNDS
from dashboards.costs.tasks import calibrate
from dashboards.models import Calibration
from endpoints.models import Endpoint
from endpoints.runs import RunState
from tests.dashboards.costs.formulas.test_calibration import Worker
from tests.dashboards.costs.prices.test_factors import endpoint, measured
from tests.support.http_stub import http_stub
from tests.support.people import Cast, cast

pytestmark = pytest.mark.django_db
IDLE = EndpointLoad(in_flight=0, served=40)


@pytest.fixture
def people() -> Cast:
    return cast()


def ready(name: str = "demo", **more: Any) -> Endpoint:
    made = endpoint(name, **more)
    facts = {"phase": "Ready", "url": "http://127.0.0.1:1", "ready_replicas": 1}
    type(made.status).objects.filter(endpoint=made).update(
        **facts, observed_generation=made.generation
    )
    made.replicas.create(name=f"{name}-0", index=0, state="ready", url="http://127.0.0.1:2")
    return made


def sweep(load: EndpointLoad | None = IDLE) -> Calibration | None:
    return auto_calibration.sweep(lambda _endpoint: load)


class Router:
    """Counts the requests of the run; `others` arrive after that many of them."""

    def __init__(self, others_after: int = 99) -> None:
        self.worker = Worker()
        self.others_after = others_after

    def ask(self, prompt: str, worker: str) -> Any:
        return self.worker.ask(prompt, worker)

    def load(self, _endpoint: Endpoint) -> EndpointLoad:
        sent = len(self.worker.prompts)
        return EndpointLoad(0, 40 + sent + (sent >= self.others_after))


def carry_out(run: Calibration, router: Router) -> Calibration:
    run.worker = ""
    workers = run.endpoint.replicas.get().name
    answer = router.worker.ask

    def ask(prompt: str, _worker: str) -> Any:
        return answer(prompt, workers)

    endpoint_runs.run_calibration(str(run.pk), lambda _endpoint: ask, router.load)
    run.refresh_from_db()
    return run


def test_ready_idle_endpoint_is_calibrated_once(people: Cast) -> None:
    made = ready()
    assert auto_calibration.has_work()
    run = sweep()
    assert run is not None and run.automatic and run.started_by is None
    assert auto_calibration.has_work(), "it may be abandoned"
    assert sweep() is None, "one at a time"
    before = counters.total("auto_calibrations", outcome="done")
    done = carry_out(run, Router())
    assert (done.state, done.reason) == (RunState.DONE, "")
    assert done.seconds_per_token == pytest.approx(0.002)
    assert counters.total("auto_calibrations", outcome="done") == before + 1
    (event,) = made.events.all()
    assert event.kind == "CalibrationDone" and "2,000 µs" in event.message
    assert sweep() is None, "measured already"
    assert not auto_calibration.has_work()


def test_other_requests_end_a_calibration(people: Cast) -> None:
    made = ready()
    router = Router(others_after=3)
    run = sweep()
    assert run is not None
    done = carry_out(run, router)
    assert (done.state, done.reason, done.seconds_per_token) == (RunState.FAILED, "traffic", None)
    assert len(router.worker.prompts) == 3, "nothing is sent after that"
    (event,) = made.events.all()
    assert event.kind == "CalibrationAbandoned" and "Other requests arrived" in event.message


@pytest.mark.parametrize(
    ("limit", "value", "reason"),
    [("DEADLINE_S", -1.0, "time_limit"), ("MAX_TOKENS", 300, "token_limit")],
)
def test_time_and_tokens_are_bounded(
    limit: str, value: float, reason: str, people: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready()
    monkeypatch.setattr(calibration_guard, limit, value)
    router, run = Router(), sweep()
    assert run is not None
    assert carry_out(run, router).reason == reason
    assert len(router.worker.prompts) < 2 * ROUNDS


@pytest.mark.parametrize("load", [None, EndpointLoad(in_flight=1, served=3)])
def test_busy_workers_are_not_calibrated(load: EndpointLoad | None, people: Cast) -> None:
    ready()
    assert sweep(load) is None
    assert not Calibration.objects.exists()


@pytest.mark.parametrize("phase", ["Paused", "Degraded", "Provisioning"])
def test_only_ready_endpoints_are_calibrated(phase: str, people: Cast) -> None:
    made = ready()
    type(made.status).objects.update(phase=phase)
    assert sweep() is None


def test_pausing_ends_a_running_calibration(people: Cast) -> None:
    made = ready()
    run = sweep()
    assert run is not None
    type(made.status).objects.update(phase="Paused")
    assert carry_out(run, Router()).reason == "not_ready"


def test_calibration_switches(people: Cast) -> None:
    ready()
    set_default(people.alice, False)
    assert sweep() is None
    set_endpoint(people.alice, "demo", True)
    run = sweep()
    assert run is not None
    set_endpoint(people.alice, "demo", False)
    assert carry_out(run, Router()).reason == "switched_off"


def test_installation_sets_the_default(people: Cast, settings: Any) -> None:
    from dataclasses import replace

    ready()
    settings.EMBERLINE = replace(settings.EMBERLINE, auto_calibration=False)
    calibrate()
    assert not Calibration.objects.exists()


def test_equal_endpoints_are_calibrated_once_and_other_models_separately(people: Cast) -> None:
    measured(ready("one"), 0.002)
    ready("two")
    assert sweep() is None
    Endpoint.objects.filter(name="two").update(
        spec={**Endpoint.objects.get(name="two").spec, "model": "org/other"}
    )
    run = sweep()
    assert run is not None and run.endpoint.name == "two"


def test_failure_is_retried_with_growing_delays(people: Cast) -> None:
    ready()
    now = timezone.now()
    due: Callable[[], bool] = lambda: bool(list(find_due(now)))  # noqa: E731
    for attempt in range(ATTEMPTS):
        run = sweep()
        assert run is not None
        Calibration.objects.update(state=RunState.FAILED)
        Calibration.objects.filter(pk=run.pk).update(created_at=now)
        assert not due(), "at once"
        delay = DELAYS[min(attempt, len(DELAYS) - 1)]
        Calibration.objects.update(created_at=now - delay - timedelta(seconds=1))
        assert due() == (attempt < ATTEMPTS - 1)
    Calibration.objects.update(created_at=now - timedelta(days=9))
    assert not due(), "no more attempts"


def test_load_is_that_of_all_routers() -> None:
    """On a cluster an endpoint has two by default; each knows its own requests."""
    row = {"id": "w0", "url": "http://w", "state": "up", "in_flight": 2, "served": 5}
    demo = ready()
    with ExitStack() as stack:
        pages = [{"/workers": (200, {"workers": [row | {"served": n}]})} for n in (5, 7)]
        stubs = [stack.enter_context(http_stub(page)) for page in pages]
        parts = {"router": {"admin_urls": [stub.url for stub in stubs]}}
        type(demo.status).objects.filter(endpoint=demo).update(parts=parts)
        assert calibration_guard.read_load(demo) == EndpointLoad(4, 12)
        demo.status.refresh_from_db()
        assert load_plan._query_in_flight(demo) == 4
        stubs[1].answers["/workers"] = (503, "")
        assert calibration_guard.read_load(demo) is None
        assert load_plan._query_in_flight(demo) is None
