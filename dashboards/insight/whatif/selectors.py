"""Read what-if analyses for pages and the API."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet

from dashboards.insight.whatif.models import WhatIf, WhatIfKind
from endpoints.runs import find_run


def list_runs(name: str) -> QuerySet[WhatIf]:
    """Return the endpoint's analyses, latest first; the gate has checked access."""
    return _of_kind(name, WhatIfKind.ANALYSIS)


def list_surveys(name: str) -> QuerySet[WhatIf]:
    """Return the endpoint's analyses of many candidates, latest first."""
    return _of_kind(name, WhatIfKind.SURVEY)


def _of_kind(name: str, kind: WhatIfKind) -> QuerySet[WhatIf]:
    rows = WhatIf.objects.select_related("endpoint", "started_by")
    return rows.filter(endpoint__name=name, kind=kind)


def get_run(name: str, run: object) -> WhatIf:
    """Raise Refused (404) if the endpoint has no such analysis."""
    rows = list_runs(name).select_related("endpoint__status", "endpoint__team")
    return find_run(rows, run, "analysis")


def count_live(name: str) -> int:
    return WhatIf.list_live().filter(endpoint__name=name).count()


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
