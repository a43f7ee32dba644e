"""Start, cancel and delete what-if analyses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction

from console.accounts.credentials import stored_actor
from console.accounts.permissions import require
from console.audit.record import record
from console.core.errors import Problem, Refused
from dashboards.insight.traces.storage import load_imported
from dashboards.insight.traces.trace import TraceError
from dashboards.insight.whatif import inputs, selectors, tasks
from dashboards.insight.whatif.models import WhatIf, WhatIfKind
from endpoints import selectors as endpoints
from endpoints.models import Endpoint
from endpoints.refusals import ConflictError
from endpoints.runs import RunState

KEPT = 100  # per endpoint
MAX_LIVE = 5  # per endpoint
MAX_TITLE = 80


@dataclass(frozen=True, slots=True)
class WhatIfRequest:
    """Request of a what-if analysis. `given`: changed values by field name. `begin`, `end` None:
    the newest recorded hours.
    """

    given: Mapping[str, Any]
    begin: datetime | None = None
    end: datetime | None = None
    title: str = ""
    trace: str = ""


def start(actor: Any, name: str, request: WhatIfRequest) -> WhatIf:
    """Queue an analysis of an endpoint's recorded requests. Raise Refused."""
    endpoint = endpoints.get(name, viewer=actor)
    require(actor, "operator", of=endpoint)
    if len(request.title) > MAX_TITLE:
        remedy = f"Enter at most {MAX_TITLE} characters."
        raise Refused(Problem("title", request.title, "The title is too long.", remedy, "too_long"))
    present = inputs.present_values(endpoint)
    candidate = inputs.read_values(request.given, present)
    # What is unknown of the present configuration is the candidate's: it converts and prices both.
    for field in ("kv_kib", "price_usd_hour", "device_tokens"):
        if present[field] is None:
            present[field] = candidate[field]
    if present["l1_gib"] or present["l2_gib"]:
        inputs.read_values({}, present)
    begin, end = _period(endpoint, request)
    if request.trace:
        try:
            load_imported(endpoint, request.trace)
        except TraceError as error:
            remedy = "Import it, or leave the field empty."
            problem = Problem("trace", request.trace[:80], str(error), remedy, "not_found")
            raise Refused(problem) from None
    _require_room(name)
    with transaction.atomic():
        row = WhatIf.objects.create(
            endpoint=endpoint,
            title=request.title.strip(),
            begin=begin,
            end=end,
            trace=request.trace,
            present=present,
            candidate=candidate,
            stage="Queued",
            started_by=stored_actor(actor),
        )
        changed = {label: [old, new] for label, old, new in inputs.list_changes(present, candidate)}
        record(actor, "what-if.start", f"endpoint/{name}", {"run": str(row.pk), "changes": changed})
        WhatIf.delete_old(selectors.list_runs(name), KEPT)
        tasks.sweep.nudge()
    return row


def start_survey(
    actor: Any, endpoint: Endpoint, present: inputs.Values, candidates: Sequence[inputs.Values]
) -> WhatIf:
    """Queue an analysis of many candidates on the newest recorded requests; the caller records it
    in the audit log. Raise Refused.
    """
    require(actor, "operator", of=endpoint)
    begin, end = _period(endpoint, WhatIfRequest({}))
    _require_room(endpoint.name)
    row = WhatIf.objects.create(
        endpoint=endpoint,
        kind=WhatIfKind.SURVEY,
        begin=begin,
        end=end,
        present=present,
        candidate=present,
        candidates=list(candidates),
        stage="Queued",
        started_by=stored_actor(actor),
    )
    WhatIf.delete_old(selectors.list_surveys(endpoint.name), KEPT)
    tasks.sweep.nudge()
    return row


def _require_room(name: str) -> None:
    if selectors.count_live(name) >= MAX_LIVE:
        raise ConflictError(
            "too_many_analyses",
            f"{MAX_LIVE} analyses of {name} are queued or running.",
            "Wait for one to end, or cancel one.",
        )


def _period(endpoint: Any, request: WhatIfRequest) -> tuple[datetime, datetime]:
    default = inputs.default_period(endpoint)
    if default is None:
        raise ConflictError(
            "nothing_recorded",
            f"No traffic of {endpoint.name} is recorded.",
            "Switch on its traffic recording (routing.record_traffic) for an hour of requests.",
        )
    begin, end = request.begin or default[0], request.end or default[1]
    if begin >= end:
        remedy = "Choose an end after the begin."
        raise Refused(Problem("end", end, "The period is empty.", remedy, "out_of_range"))
    if end - begin > inputs.MAX_PERIOD:
        remedy = f"Choose at most {inputs.MAX_PERIOD.days} days."
        raise Refused(Problem("begin", begin, "The period is too long.", remedy, "out_of_range"))
    return begin, end


def cancel(actor: Any, row: WhatIf) -> None:
    """End the analysis within about a second; an ended one is unchanged."""
    require(actor, "operator", of=row.endpoint)
    with transaction.atomic():
        if not WhatIf.request_cancel(row.pk):
            return
        queued = WhatIf.objects.filter(pk=row.pk, state=RunState.QUEUED)
        WhatIf.finish(queued, RunState.CANCELLED)
        target = f"endpoint/{row.endpoint.name}"
        record(actor, "what-if.cancel", target, {"run": str(row.pk)})


def delete(actor: Any, row: WhatIf) -> None:
    require(actor, "operator", of=row.endpoint)
    if row.live:
        raise ConflictError(
            "analysis_running", "The analysis is queued or running.", "Cancel it first."
        )
    with transaction.atomic():
        target = f"endpoint/{row.endpoint.name}"
        record(actor, "what-if.delete", target, {"run": str(row.pk)})
        row.delete()
