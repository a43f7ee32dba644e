"""Read proof runs for the Overview and REST."""

from __future__ import annotations

from console.accounts.permissions import Somebody, allows
from dashboards.boards.queries import Scope
from dashboards.models import ProofRun
from endpoints import teams
from endpoints.models import Endpoint


def get_latest_proof(endpoint: Endpoint) -> ProofRun | None:
    return (
        ProofRun.objects.filter(endpoint=endpoint)
        .select_related("endpoint", "started_by")
        .order_by("-created_at")
        .first()
    )


def get_fleet_scope(viewer: Somebody) -> Scope:
    """Return the scope of all endpoints for a viewer with a global role, else of the viewer's
    teams.
    """
    if allows(viewer, "viewer"):
        return Scope()
    return Scope(among=tuple(sorted(teams.names(viewer))))
