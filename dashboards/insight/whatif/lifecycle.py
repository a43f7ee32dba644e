"""Start, run and end what-if analyses: one at a time, each in a process of its own.

A sweep claims a queued row with a conditional UPDATE, teams in turn. The process reports to the
row, and ends when the row is cancelled, deleted or failed. A row without reports, or that runs too
long, is failed by a later sweep.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from dashboards.insight.traces.storage import load_imported, load_trace
from dashboards.insight.traces.trace import Trace, TraceError
from dashboards.insight.whatif import canaries, inputs
from dashboards.insight.whatif.model.analysis import analyse, as_document, as_survey, survey
from dashboards.insight.whatif.model.calibration import CalibrationError
from dashboards.insight.whatif.models import WhatIf, WhatIfKind
from dashboards.insight.whatif.scopes import scope_names
from endpoints.runs import RunState

log = logging.getLogger(__name__)

MAX_REQUESTS = 200_000
MAX_SURVEYED = 20_000  # newest requests that a survey replays
SILENT = timedelta(seconds=90)
LONGEST = timedelta(minutes=30)
REPORT_S = 1.0
_NICE = 10


class _CancelledError(Exception):
    """The row was cancelled or deleted."""


def has_work() -> bool:
    return WhatIf.list_live().exists()


def sweep() -> None:
    """Fail silent and overdue rows, and start a queued one if none is running."""
    now = timezone.now()
    running = WhatIf.objects.filter(state=RunState.RUNNING)
    WhatIf.finish(
        running.filter(started_at__lt=now - LONGEST),
        RunState.FAILED,
        f"The analysis did not end within {LONGEST.seconds // 60} minutes. Choose fewer "
        "hours or fewer candidates.",
    )
    # Touched in the future: by a clock that was ahead.
    WhatIf.finish(
        running.filter(Q(touched_at__lt=now - SILENT) | Q(touched_at__gt=now + SILENT)),
        RunState.FAILED,
        "The process of the analysis ended early, for example by a restart of the console. "
        "Start the analysis again.",
    )
    if running.exists():
        return
    run = _next_run()
    if run is not None and WhatIf.claim(run, stage="Reading the recording"):
        _spawn(run)


def _next_run() -> UUID | None:
    """Return the oldest queued analysis of the team whose last one began first."""
    queued = WhatIf.objects.filter(state=RunState.QUEUED).order_by("created_at", "pk")
    rows = list(queued.values_list("pk", "endpoint__team"))
    began = WhatIf.objects.filter(started_at__isnull=False).order_by()
    last = dict(began.values_list("endpoint__team").annotate(Max("started_at")))
    never = datetime.min.replace(tzinfo=UTC)
    rows.sort(key=lambda row: last.get(row[1], never))
    return rows[0][0] if rows else None


def _spawn(run: UUID) -> None:
    command = (sys.executable, "-m", "django", "run_whatif", str(run))
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "console.settings"}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
    # Without a wait the ended process would stay as a zombie.
    threading.Thread(target=process.wait, daemon=True, name=f"whatif-{run}").start()


def lower_priority() -> None:
    """Leave the cores to requests and the console."""
    os.nice(_NICE)


def execute(run: UUID) -> None:
    """Run a claimed analysis to its end."""
    row = WhatIf.objects.select_related("endpoint").filter(pk=run).first()
    if row is None:
        return
    report = _Reporter(run)
    finish = partial(WhatIf.finish, WhatIf.objects.filter(pk=run, state=RunState.RUNNING))
    try:
        result = _analyse(row, report)
    except _CancelledError:
        finish(RunState.CANCELLED)
    except (TraceError, CalibrationError) as error:
        finish(RunState.FAILED, str(error))
    except Exception:
        log.exception("What-if analysis %s failed", run)
        message = "The analysis failed unexpectedly; the console's log has the cause."
        finish(RunState.FAILED, message)
    else:
        finish(RunState.DONE, result=result, share=1.0)


def _analyse(row: WhatIf, report: _Reporter) -> dict[str, Any]:
    recorded = load_trace(row.endpoint, row.begin, row.end)
    workload = load_imported(row.endpoint, row.trace) if row.trace else None
    limits = inputs.engine_limits(row.endpoint.parsed)
    present = inputs.make_configuration(row.present, limits)
    canary = canaries.describe(row.endpoint, row.begin, row.end, recorded)
    if row.kind == WhatIfKind.SURVEY:
        candidates = [inputs.make_configuration(candidate, limits) for candidate in row.candidates]
        newest = _newest(recorded, MAX_SURVEYED)
        surveyed = as_survey(survey(newest, present, candidates, report))
        canaries.add_to(surveyed, canary)
        return surveyed
    count = len((workload or recorded).requests)
    if count > MAX_REQUESTS:
        raise TraceError(
            f"The period has {count:,} requests; the limit is {MAX_REQUESTS:,}. "
            "Choose a shorter period."
        )
    candidate = inputs.make_configuration(row.candidate, limits)
    document = as_document(analyse(recorded, present, candidate, report, workload))
    canaries.add_to(document, canary)
    if "isolation" in document:
        names = scope_names(row.endpoint)
        for row_data in document["isolation"]["rows"]:
            row_data["name"] = names.get(row_data["scope"], "")
    return document


def _newest(trace: Trace, most: int) -> Trace:
    left_out = max(len(trace.requests) - most, 0)
    return replace(trace, requests=trace.requests[left_out:]) if left_out else trace


class _Reporter:
    """Writes progress about once a second."""

    def __init__(self, run: UUID) -> None:
        self._rows: QuerySet[WhatIf] = WhatIf.objects.filter(
            pk=run, state=RunState.RUNNING, cancel_at__isnull=True
        )
        self._last = -REPORT_S

    def __call__(self, share: float, stage: str) -> None:
        now = time.monotonic()
        if now - self._last < REPORT_S:
            return
        self._last = now
        if not self._rows.update(share=share, stage=stage[:80], touched_at=timezone.now()):
            raise _CancelledError
