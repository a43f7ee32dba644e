"""Read what-if analyses for pages and the API."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from console.core.errors import Problem, Refused
from routing.whatif.models import LIVE, WhatIf, WhatIfKind


def list_runs(name: str) -> QuerySet[WhatIf]:
    """Return the endpoint's analyses, latest first; the gate has checked access."""
    return _of_kind(name, WhatIfKind.ANALYSIS)


def list_surveys(name: str) -> QuerySet[WhatIf]:
    """Return the endpoint's analyses of many candidates, latest first."""
    return _of_kind(name, WhatIfKind.SURVEY)


def _of_kind(name: str, kind: WhatIfKind) -> QuerySet[WhatIf]:
    rows = WhatIf.objects.select_related("endpoint", "started_by")
    return rows.filter(endpoint__name=name, kind=kind).order_by("-created_at", "-id")


def get_run(name: str, run: Any) -> WhatIf:
    """Raise Refused (404) if the endpoint has no such analysis."""
    try:
        wanted = run if isinstance(run, UUID) else UUID(str(run))
    except ValueError:
        raise _not_found(run) from None
    found = list_runs(name).select_related("endpoint__status", "endpoint__team").filter(pk=wanted)
    row = found.first()
    if row is None:
        raise _not_found(run)
    return row


def count_live(name: str) -> int:
    return WhatIf.objects.filter(endpoint__name=name, state__in=LIVE).count()


def _not_found(run: Any) -> Refused:
    remedy = "Choose one from the list of analyses."
    problem = Problem("run", str(run)[:80], "Analysis not found.", remedy, "not_found")
    return Refused(problem, status_code=404)


def build_document(row: WhatIf) -> dict[str, Any]:
    """Return the REST document."""
    return {
        "id": str(row.pk),
        "endpoint": row.endpoint.name,
        "title": row.title,
        "begin": row.begin,
        "end": row.end,
        "trace": row.trace,
        "present_values": row.present,
        "candidate_values": row.candidate,
        "state": row.state,
        "share": row.share,
        "stage": row.stage,
        "message": row.message,
        "result": row.result or None,
        "started_by": row.started_by.get_username() if row.started_by else "system",
        "created_at": row.created_at,
        "started_at": row.started_at,
        "finished_at": row.finished_at,
    }
