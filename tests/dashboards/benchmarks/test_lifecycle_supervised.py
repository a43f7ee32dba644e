"""Benchmark as a program of a real supervisord, independent of the console."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards.benchmarks import actions, lifecycle
from dashboards.benchmarks.actions import BenchmarkRequest
from dashboards.benchmarks.generator import files, keeper
from dashboards.benchmarks.models import Benchmark
from tests.dashboards.benchmarks.conftest import Fleet, passes
from tests.support.console import person
from tests.support.supervised import Supervised
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def supervised(settings: Any) -> Iterator[Supervised]:
    found = Supervised()
    found.start()
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, var=found.var, provisioner="local")
    yield found
    found.close()


def start(**given: Any) -> Benchmark:
    benchmark = BenchmarkRequest({"rate": 20, "think_s": 0.05, "duration_s": 1, **given})
    return actions.start(person("operator"), "demo", benchmark)[0]


def test_run_is_a_program_of_supervisord_and_leaves_nothing(
    supervised: Supervised, fleet: Fleet
) -> None:
    endpoint = fleet.endpoint()
    run = passes(start(max_requests=20, duration_s=60), "running")
    until(supervised.processes)
    assert keeper._children == {}  # it is no child of this process
    passes(run, "done")
    assert run.result["requests"] > 5
    until(lambda: (lifecycle.sweep(), not Benchmark.objects.get(pk=run.pk).left)[1])
    assert supervised.processes() == []
    assert not list((supervised.var / "supervisor" / "conf.d").glob("bench-*"))
    again = passes(start(duration_s=600), "running")
    until(lambda: lifecycle.read_current_progress(again).get("sent"))
    actions.abort(person("operator"), again)
    until(lambda: supervised.processes() == [], 60, "its end without a sweep")
    passes(again, "aborted")
    assert endpoint.benchmarks.count() == 2


def test_run_without_its_supervisor_is_lost_and_does_not_resume(
    supervised: Supervised, fleet: Fleet
) -> None:
    fleet.endpoint()
    run = passes(start(duration_s=600), "running")
    folder = keeper.folder_of(supervised.var, str(run.pk))
    until(lambda: (files.read_progress(folder) or {}).get("done"))
    supervised.kill()
    until(lambda: supervised.processes() == [], what="ended with its keeper")
    supervised.start()  # as after a reboot: it starts all its programs again
    until(lambda: (files.read_progress(folder) or {})["state"] != files.RUNNING)
    sent = (files.read_progress(folder) or {})["sent"]
    run = passes(run, "failed", "aborted")
    assert run.progress["sent"] == sent
    assert run.message  # this end was not requested


def test_run_of_a_removed_endpoint_leaves_no_program(supervised: Supervised, fleet: Fleet) -> None:
    endpoint = fleet.endpoint()
    passes(start(duration_s=600), "running")
    until(supervised.processes)
    endpoint.delete()
    assert not Benchmark.objects.exists()
    until(lambda: (lifecycle.sweep(), supervised.processes() == [])[1], what="no generator")
    folder = supervised.var / "benchmarks"
    until(lambda: (lifecycle.sweep(), list(folder.iterdir()) == [])[1], what="no folder")
    assert not list((supervised.var / "supervisor" / "conf.d").glob("bench-*"))
