"""Start, observe, end and clean up benchmarks; level-triggered by a sweep.

A conditional UPDATE claims the row, so a run starts once. Any pass may end at any line; the next
one continues. Only the machine that started a run can read its files.
"""

from __future__ import annotations

import gzip
import logging
import shutil
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from console.core.counters import increment
from console.provisioners.base import ProvisionError
from dashboards.benchmarks.generator import files, traces
from dashboards.benchmarks.generator.job import TRACE, from_json
from dashboards.benchmarks.generator.keeper import (
    Keeper,
    folder_of,
    get_hostname,
    list_folders,
    make_folder,
    make_keeper,
)
from dashboards.benchmarks.models import Benchmark, BenchmarkData
from endpoints import selectors
from endpoints.runs import LIVE, RunState

log = logging.getLogger(__name__)

ABANDONED_S = 60.0
# Limits for a generator's first progress, and for its age afterwards.
PROGRESS_DEADLINE_S = 30.0
# Added to the job's own limit, for the drain and a busy machine.
OVERTIME_S = 90.0
KILLED = "The load generator exited early. Results up to then are shown below."


def has_work() -> bool:
    """Return whether a run is to be processed, or a folder may be one without a row."""
    return _open_rows().exists() or bool(list_folders(settings.EMBERLINE.var))


def _open_rows() -> QuerySet[Benchmark]:
    return Benchmark.objects.filter(Q(state__in=LIVE) | Q(left=True))


def sweep() -> None:
    rows = _open_rows()
    for row in rows.select_related("endpoint__status", "after").order_by("created_at"):
        try:
            process_run(row)
        except ProvisionError as error:
            increment("benchmark_passes", outcome=error.reason)
            log.warning("Pass over benchmark %s failed, retrying: %s", row.pk, error.message)
    _remove_orphans()


def _remove_orphans() -> None:
    """Stop generators and delete folders of runs without a row, e.g. of a deleted endpoint."""
    var = settings.EMBERLINE.var
    folders = {path.name for path in list_folders(var)}
    if not folders:
        return
    pks = {str(pk) for pk in Benchmark.objects.filter(pk__in=folders).values_list("pk", flat=True)}
    keeper = make_keeper(settings.EMBERLINE.provisioner, var)
    for run in folders - pks:
        try:
            if keeper.gone(run):
                shutil.rmtree(folder_of(var, run), ignore_errors=True)
            else:
                keeper.stop(run)
        except ProvisionError as error:
            log.warning("Cannot stop deleted benchmark %s, retrying: %s", run, error.message)


def process_run(row: Benchmark) -> None:
    keeper = make_keeper(settings.EMBERLINE.provisioner, settings.EMBERLINE.var)
    if row.state == RunState.QUEUED:
        _start_run(row, keeper)
    elif row.host != get_hostname():
        _fail_abandoned(row)
    elif row.state == RunState.RUNNING:
        _observe_run(row, keeper)
    elif row.left:
        _clean_up(row, keeper)


def read_current_progress(row: Benchmark) -> dict[str, Any]:
    if row.state == RunState.RUNNING and row.host == get_hostname():
        current_progress = files.read_progress(_folder(row))
        if current_progress is not None:
            return current_progress
    return row.progress


def _start_run(row: Benchmark, kept: Keeper) -> None:
    if row.cancel_at:
        _end(row, RunState.ABORTED, "Aborted before the start.")
        return
    if row.after is not None and row.after.live:
        return
    why_not = why_not_measurable(row)
    if why_not:
        _end(row, RunState.FAILED, why_not)
        return
    # Before the row changes: another pass may start a run it finds RUNNING.
    make_task(row).write(make_folder(settings.EMBERLINE.var, str(row.pk)))
    stage = "Starting the load generator"
    if Benchmark.claim(row.pk, host=get_hostname(), left=True, stage=stage):
        kept.start(str(row.pk))


def why_not_measurable(row: Benchmark) -> str:
    """Return the reason why nothing can be measured now, "" if it can."""
    endpoint = row.endpoint
    if endpoint.shown_phase not in ("Ready", "Degraded") or not endpoint.status.url:
        return f"{endpoint.name} was {endpoint.shown_phase} at the start."
    return ""


def make_task(row: Benchmark) -> files.Task:
    """Build the generator's task. It contains the console's key: write it to its folder only."""
    rows: tuple[Any, ...] = ()
    if row.job["workload"] == TRACE:
        rows = traces.parse(gzip.decompress(bytes(row.data.trace)).decode())
    endpoint = row.endpoint
    workers = {w.name: w.url for w in selectors.worker_facts(endpoint) if w.ready and w.url}
    return files.Task(
        job=from_json(row.job, rows),
        url=selectors.ask_url(endpoint),
        model=endpoint.name,
        key=selectors.console_key(endpoint),
        workers=workers,
    )


def _observe_run(row: Benchmark, kept: Keeper) -> None:
    run = str(row.pk)
    gone = kept.gone(run)  # check before reading its file: an ended process has written all
    progress = files.read_progress(_folder(row))
    state = (progress or {}).get("state", "")
    if progress is not None and state in (files.DONE, files.ABORTED):
        _ended(row, progress)
    elif state == files.LOST:
        _end(row, RunState.FAILED, KILLED, progress=progress)
    elif gone and row.cancel_at:
        _end(row, RunState.ABORTED, "", progress=progress)
    elif gone and not _is_just_claimed(row):
        words = kept.last_words(run)
        _end(row, RunState.FAILED, f"{KILLED} {words}".strip()[:2000], progress=progress or {})
    elif row.cancel_at:
        kept.stop(run)
        Benchmark.update_running(
            row.pk, stage="Ending", **({"progress": progress} if progress else {})
        )
    elif _is_overdue(row, progress):
        kept.stop(run)
        _end(
            row,
            RunState.FAILED,
            "The load generator stopped reporting and was terminated.",
            progress=progress,
        )
    elif gone:
        kept.start(run)  # the pass that should have started it was killed
        Benchmark.update_running(row.pk)
    else:
        Benchmark.update_running(row.pk, stage="", **({"progress": progress} if progress else {}))


def _is_just_claimed(row: Benchmark) -> bool:
    """Return whether the run was just claimed and its process may not have started yet."""
    begun = row.started_at or row.created_at
    return (
        timezone.now() - begun < timedelta(seconds=PROGRESS_DEADLINE_S)
        and files.read_progress(_folder(row)) is None
    )


def _is_overdue(row: Benchmark, seen: dict[str, Any] | None) -> bool:
    begun = row.started_at or row.created_at
    running_s = (timezone.now() - begun).total_seconds()
    silent_s = time.time() - seen["at"] if seen else running_s
    return silent_s > PROGRESS_DEADLINE_S or running_s > row.job["duration_s"] + OVERTIME_S


def _ended(row: Benchmark, seen: dict[str, Any]) -> None:
    aborted = seen["state"] == files.ABORTED
    result = seen.get("result", {})
    packed = files.read_samples(_folder(row))
    with transaction.atomic():
        BenchmarkData.objects.update_or_create(run=row, defaults={"samples": packed})
        state, message = (RunState.ABORTED, "") if aborted else (RunState.DONE, "")
        if aborted and not row.cancel_at:
            message = "Terminated externally, for example by stopping the console."
        if not aborted and not result.get("requests"):
            state, message = RunState.FAILED, "No request was completed."
        progress = {name: value for name, value in seen.items() if name != "result"}
        _end(row, state, message, progress=progress, result=result)


def _fail_abandoned(row: Benchmark) -> None:
    """Fail a run of another machine, which cleans up itself when it returns."""
    if timezone.now() - row.touched_at < timedelta(seconds=ABANDONED_S):
        return
    if row.state == RunState.RUNNING:
        _end(row, RunState.FAILED, f"The background worker of this run ({row.host}) is gone.")
    else:
        Benchmark.objects.filter(pk=row.pk).update(left=False)


def _clean_up(row: Benchmark, kept: Keeper) -> None:
    run = str(row.pk)
    if not kept.gone(run):
        kept.stop(run)
        return
    shutil.rmtree(_folder(row), ignore_errors=True)
    Benchmark.objects.filter(pk=row.pk).update(left=False)


def _end(row: Benchmark, state: RunState, message: str, **fields: Any) -> None:
    """End a live run; the first end is kept."""
    written = {name: value for name, value in fields.items() if value is not None}
    if Benchmark.finish(Benchmark.objects.filter(pk=row.pk), state, message, **written):
        increment("benchmarks", outcome=str(state))


def _folder(row: Benchmark) -> Path:
    return folder_of(settings.EMBERLINE.var, str(row.pk))
