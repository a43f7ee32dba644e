"""Benchmark process with simulated workers behind a real router: start, progress, end, cleanup."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.utils import timezone

from console.audit.selectors import list_events
from dashboards.benchmarks import actions, lifecycle, selectors
from dashboards.benchmarks.actions import BenchmarkRequest
from dashboards.benchmarks.generator import files, keeper
from dashboards.benchmarks.models import Benchmark
from endpoints.refusals import ConflictError
from endpoints.runs import RunState
from tests.dashboards.benchmarks.conftest import Fleet, passes
from tests.support.cachenode import ROOT
from tests.support.console import make_endpoint, person, pretend_ready
from tests.support.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("tidy")
QUICK = {"rate": 40, "duration_s": 1, "think_s": 0.05, "answer_tokens": 8}


def start(name: str = "demo", **given: Any) -> Benchmark:
    return actions.start(person("operator"), name, BenchmarkRequest({**QUICK, **given}))[0]


def pid_of(run: Benchmark) -> int:
    folder = keeper.folder_of(settings.EMBERLINE.var, str(run.pk))
    return int(until(lambda: (folder / "pid").exists() and (folder / "pid").read_text()))


def test_run_is_measured_and_leaves_nothing(fleet: Fleet) -> None:
    fleet.endpoint()
    run = passes(start(max_requests=40, duration_s=60), "running")
    pid = pid_of(run)
    passes(run, "done")
    assert run.result["requests"] > 10
    assert run.result["failed"] == 0
    assert 0 < run.result["ttft"]["p50"] < 60
    assert set(run.result["workers"]) <= {"127.0.0.1:" + u.rpartition(":")[2] for u in
                                          fleet.workers.values()} | set(fleet.workers)  # fmt: skip
    assert run.result["cached_share"] > 0.2
    assert run.progress["tiers"]["device"] > 0
    assert run.progress["tiers"]["computed"] > 0
    assert run.progress["unseen"] == {}
    samples = selectors.read_samples(run)
    assert len(samples) == run.result["requests"] + run.result["not_counted"]
    until(lambda: (lifecycle.sweep(), not Benchmark.objects.get(pk=run.pk).left)[1])
    assert not keeper.folder_of(settings.EMBERLINE.var, str(run.pk)).exists()
    assert not Path(f"/proc/{pid}").exists()


def test_fresh_prompts_start_cold_and_shared_ones_hit(fleet: Fleet) -> None:
    fleet.endpoint()
    work = {"workload": "documents", "documents": 1, "rate": 50, "max_requests": 5}
    first = passes(start(**work), "done")
    second = passes(start(**work), "done")
    assert first.job["nonce"] != second.job["nonce"]
    # Whichever came first: on a busy machine they overtake each other.
    assert min(sample.cached_tokens or 0 for sample in selectors.read_samples(second)) == 0
    benchmark = BenchmarkRequest({**QUICK, **work}, caches="shared")
    warm = [
        passes(actions.start(person("operator"), "demo", benchmark)[0], "done") for _ in range(2)
    ]
    assert warm[0].job["nonce"] == warm[1].job["nonce"] == "seed-1"
    assert (selectors.read_samples(warm[1])[0].cached_tokens or 0) > 1400


def test_abort_ends_a_run_at_once(fleet: Fleet) -> None:
    fleet.endpoint()
    run = passes(start(duration_s=600, rate=5), "running")
    until(lambda: (lifecycle.read_current_progress(run) or {}).get("sent"))
    pid = pid_of(run)
    actions.abort(person("operator"), run)
    until(lambda: lifecycle.read_current_progress(run).get("state") == files.ABORTED)
    passes(run, "aborted")
    assert run.result["requests"] >= 0
    until(lambda: (lifecycle.sweep(), not Path(f"/proc/{pid}").exists())[1])


def test_abort_of_a_queued_run_sends_nothing(fleet: Fleet) -> None:
    fleet.endpoint()
    run = start()
    actions.abort(person("operator"), run)
    passes(run, "aborted")
    assert run.started_at is None
    assert run.progress == {}


def test_killed_generator_is_reported_and_its_last_progress_kept(fleet: Fleet) -> None:
    fleet.endpoint()
    run = passes(start(duration_s=600, rate=20), "running")
    until(lambda: (files.read_progress(lifecycle._folder(run)) or {}).get("done"))
    os.kill(pid_of(run), signal.SIGKILL)
    passes(run, "failed")
    assert "exited early" in run.message
    assert run.progress["done"] > 0
    assert start().state == RunState.QUEUED  # it does not block the next one


def test_second_process_in_the_folder_sends_nothing(fleet: Fleet) -> None:
    """The keeper may start one twice, or anew after a death: twice the load it must not be."""
    fleet.endpoint()
    run = passes(start(duration_s=600, rate=5), "running")
    folder = keeper.folder_of(settings.EMBERLINE.var, str(run.pk))
    until(lambda: files.read_progress(folder))
    argv = [sys.executable, "-m", keeper.MODULE, "--folder", str(folder)]
    os.kill(pid_of(run), signal.SIGSTOP)  # so that what the second one writes would stay
    try:
        subprocess.run(argv, cwd=ROOT, check=True, timeout=120)
        assert (files.read_progress(folder) or {})["state"] == files.RUNNING
    finally:
        os.kill(pid_of(run), signal.SIGCONT)


def test_restarted_generator_reports_a_lost_run(tmp_path: Path) -> None:
    files.write_progress(tmp_path, {"state": files.RUNNING, "sent": 3})
    argv = [sys.executable, "-m", keeper.MODULE, "--folder", str(tmp_path)]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=120)
    assert files.read_progress(tmp_path) == {"state": files.LOST, "sent": 3}


def test_two_sweeps_start_a_run_once(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.endpoint()
    run = start()
    begun: list[str] = []
    monkeypatch.setattr(keeper.Children, "start", lambda _self, one: begun.append(one))
    stale = Benchmark.objects.select_related("endpoint__status", "after").get(pk=run.pk)
    kept = keeper.make_keeper("fake", settings.EMBERLINE.var)
    lifecycle._start_run(stale, kept)
    lifecycle._start_run(stale, kept)
    assert begun == [str(run.pk)]


def test_runs_of_two_endpoints_are_sequential(fleet: Fleet) -> None:
    fleet.endpoint()
    fleet.endpoint("other")
    benchmark = BenchmarkRequest(dict(QUICK), second="other")
    first, second = actions.start(person("operator"), "demo", benchmark)
    for name in ("demo", "other"):
        with pytest.raises(ConflictError, match="already queued or running"):
            start(name)
    lifecycle.sweep()
    second.refresh_from_db()
    assert second.state == RunState.QUEUED
    assert "Waiting for demo" in second.stage
    passes(first, "done")
    passes(second, "failed", "done")  # the simulated workers have no model "other"
    assert second.started_at >= first.finished_at
    assert {k: v for k, v in first.job.items() if k != "nonce"} == {
        k: v for k, v in second.job.items() if k != "nonce"
    }


def test_unready_endpoint_is_rejected_and_a_stopped_one_fails_the_run(fleet: Fleet) -> None:
    make_endpoint("cold")
    with pytest.raises(ConflictError, match="nothing to measure"):
        start("cold")
    endpoint = fleet.endpoint()
    run = start()
    endpoint.status.phase = "Failed"
    endpoint.status.save()
    passes(run, "failed")
    assert "was Failed at the start" in run.message


def test_unreachable_endpoint_fails_the_run(fleet: Fleet) -> None:
    pretend_ready(make_endpoint("gone"), url=f"http://127.0.0.1:{free_port()}")
    run = passes(start("gone", rate=100), "failed")
    assert run.message == "No request was completed."
    assert run.progress["stopped_by"] == "errors"


def test_run_of_another_machine_is_abandoned_after_a_while(fleet: Fleet) -> None:
    fleet.endpoint()
    run = start()
    moment = timezone.now()
    Benchmark.objects.filter(pk=run.pk).update(
        state="running", host="elsewhere", left=True, started_at=moment, touched_at=moment
    )
    lifecycle.sweep()
    run.refresh_from_db()
    assert run.state == RunState.RUNNING
    Benchmark.objects.filter(pk=run.pk).update(touched_at=moment - timedelta(seconds=61))
    passes(run, "failed")
    assert "elsewhere" in run.message
    Benchmark.objects.filter(pk=run.pk).update(touched_at=moment - timedelta(seconds=61))
    lifecycle.sweep()
    assert not Benchmark.objects.get(pk=run.pk).left


def test_key_is_only_in_its_private_file(fleet: Fleet) -> None:
    fleet.endpoint()
    run = passes(start(duration_s=600, rate=5), "running")
    pid = pid_of(run)
    folder = keeper.folder_of(settings.EMBERLINE.var, str(run.pk))
    key = json.loads((folder / "task.json").read_text())["key"]
    assert key
    assert (folder / "task.json").stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0
    seen = until(lambda: files.read_progress(folder))
    assert key not in json.dumps(seen)
    assert key.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    assert key.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    run.refresh_from_db()
    assert key not in json.dumps([run.job, run.endpoint_facts, run.progress])


def test_concurrent_runs_are_bounded(fleet: Fleet) -> None:
    for number in range(5):
        fleet.endpoint(f"e{number}")
    for number in range(4):
        start(f"e{number}")
    with pytest.raises(ConflictError, match="limit is 4"):
        start("e4")


def test_viewer_cannot_start_and_the_author_is_audited(fleet: Fleet) -> None:
    fleet.endpoint()
    with pytest.raises(PermissionDenied):
        actions.start(person("viewer"), "demo", BenchmarkRequest(dict(QUICK)))
    run = start()
    with pytest.raises(PermissionDenied):
        actions.abort(person("viewer"), run)
    content = list_events(verb="benchmark").first()
    assert content is not None
    assert (content.actor_name, content.target) == ("one-operator", "endpoint/demo")
    assert content.changes["rate"] == 40


def test_old_runs_are_pruned_and_the_latest_kept(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "KEPT", 2)
    endpoint = fleet.endpoint()
    for _ in range(4):
        Benchmark.objects.create(endpoint=endpoint, job={}, state="done")
    start()
    assert Benchmark.objects.count() == 3


def test_unobserved_load_ends(fleet: Fleet) -> None:
    fleet.endpoint()
    run = passes(start(duration_s=600, rate=5), "running")
    until(lambda: lifecycle.read_current_progress(run).get("sent"))
    pid = pid_of(run)
    shutil.rmtree(keeper.folder_of(settings.EMBERLINE.var, str(run.pk)))
    child = keeper._children[str(run.pk)]
    assert child.pid == pid
    until(lambda: child.poll() is not None, 60, "its end")
