"""Reads of proof runs for the Overview and REST."""

from __future__ import annotations

from dashboards.models import ProofRun
from endpoints.models import Endpoint


def latest_proof(endpoint: Endpoint) -> ProofRun | None:
    return (
        ProofRun.objects.filter(endpoint=endpoint)
        .select_related("endpoint", "started_by")
        .order_by("-created_at")
        .first()
    )
