"""Calibration slope from cold prompts on one worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dashboards import actions, endpoint_runs
from dashboards.costs.formulas import calibration
from dashboards.costs.formulas.calibration import ROUNDS, CalibrationResult, calibrate
from dashboards.models import Calibration
from endpoints.models import Endpoint
from endpoints.prompt.client import PromptAnswer
from endpoints.refusals import ConflictError
from endpoints.runs import RunState
from tests.support.people import cast

FIXED_S, TOKEN_S = 0.3, 0.002


class Worker:
    """Responds in a fixed time plus a time for each token; `spoil` changes the nth response."""

    def __init__(
        self, spoil: Callable[[int, PromptAnswer], PromptAnswer] = lambda _n, a: a
    ) -> None:
        self.prompts: list[str] = []
        self.spoil = spoil

    def ask(self, prompt: str, worker: str) -> PromptAnswer:
        self.prompts.append(prompt)
        tokens = len(prompt.split())
        ttft = FIXED_S + tokens * TOKEN_S
        answer = PromptAnswer(
            "x", worker=worker, ttft_s=ttft, prompt_tokens=tokens, cached_tokens=0
        )
        return self.spoil(len(self.prompts) - 1, answer)


def measured(
    spoil: Callable[[int, PromptAnswer], PromptAnswer] = lambda _n, a: a,
) -> CalibrationResult:
    return calibrate("w-0", Worker(spoil).ask, lambda _stage: None)


def test_slope_excludes_the_constant_cost_of_a_request() -> None:
    found = measured()
    assert found.seconds_per_token == pytest.approx(TOKEN_S)
    assert len(found.samples) == 2 * ROUNDS
    ratio = found.samples[1].ttft_s / found.samples[1].tokens
    assert ratio > 1.3 * TOKEN_S, "what a ratio would have said"


def test_no_prompt_is_sent_twice() -> None:
    worker = Worker()
    calibrate("w-0", worker.ask, lambda _stage: None)
    assert len({prompt[:40] for prompt in worker.prompts}) == 2 * ROUNDS + 1


def test_outlier_does_not_change_the_result() -> None:
    def spoil(number: int, answer: PromptAnswer) -> PromptAnswer:
        return replace(answer, ttft_s=9.0) if number == 2 else answer

    assert measured(spoil).seconds_per_token == pytest.approx(TOKEN_S)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"error": "no workers"}, "failed: no workers"),
        ({"worker": "w-1"}, "routed to w-1 instead of w-0"),
        ({"cached_tokens": 32}, "32 tokens were cached"),
        ({"ttft_s": None}, "no time to first token"),
        ({"prompt_tokens": None}, "no prompt length"),
    ],
)
def test_failed_calibration_states_the_cause(change: dict[str, Any], message: str) -> None:
    found = measured(lambda n, answer: replace(answer, **change) if n == 3 else answer)
    assert found.seconds_per_token is None
    assert message in found.problem


@pytest.mark.parametrize(
    ("change", "message"),
    [({"ttft_s": 1.0}, "was not idle"), ({"prompt_tokens": 50}, "0 tokens more")],
)
def test_missing_slope_gives_no_result(change: dict[str, Any], message: str) -> None:
    found = measured(lambda _n, answer: replace(answer, **change))
    assert found.seconds_per_token is None
    assert message in found.problem


def serving_endpoint() -> Endpoint:
    from endpoints import actions as endpoint_actions

    spec = {"name": "demo", "model": "smollm2-135m-instruct", "engine": "simulated"}
    endpoint = endpoint_actions.create(endpoint_actions.SYSTEM, spec)
    type(endpoint.status).objects.update(phase="Ready", url="http://127.0.0.1:1", worker_hash="h1")
    endpoint.replicas.create(name="w-0", index=0, state="ready", url="http://127.0.0.1:2")
    return endpoint


@pytest.mark.django_db
def test_calibration_run_from_its_row_to_its_result() -> None:
    people = cast()
    serving_endpoint()
    row = actions.start_calibration(people.alice, "demo")
    with pytest.raises(ConflictError):
        actions.start_calibration(people.alice, "demo")
    endpoint_runs.run_calibration(str(row.pk), lambda _endpoint: Worker().ask)
    row.refresh_from_db()
    assert (row.state, row.worker, row.settings_hash) == (RunState.DONE, "w-0", "h1")
    assert row.seconds_per_token == pytest.approx(TOKEN_S)
    endpoint_runs.run_calibration(str(row.pk), lambda _endpoint: pytest.fail("made twice"))


@pytest.mark.django_db
def test_every_outcome_is_stored() -> None:
    people = cast()
    endpoint = serving_endpoint()
    row = actions.start_calibration(people.alice, "demo")

    def broken(_endpoint: Endpoint) -> calibration.Ask:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError):
        endpoint_runs.run_calibration(str(row.pk), broken)
    row.refresh_from_db()
    assert row.state == RunState.FAILED
    endpoint.replicas.all().delete()
    again = actions.start_calibration(people.alice, "demo")
    endpoint_runs.run_calibration(str(again.pk), lambda _endpoint: Worker().ask)
    again.refresh_from_db()
    assert (again.state, again.live) == (RunState.FAILED, False)
    assert "No worker is ready" in again.message


@pytest.mark.django_db
def test_unready_endpoint_is_not_calibrated() -> None:
    people = cast()
    endpoint = serving_endpoint()
    type(endpoint.status).objects.update(phase="Provisioning")
    with pytest.raises(ConflictError):
        actions.start_calibration(people.alice, "demo")
    assert not Calibration.objects.exists()
