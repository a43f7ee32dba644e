"""What of Prometheus' numbers a person may see."""

from __future__ import annotations

from console.accounts.permissions import Somebody, allows
from dashboards.boards.queries import Scope
from endpoints import teams


def fleet(viewer: Somebody) -> Scope:
    """All endpoints, for who has a role everywhere; else those of the viewer's teams."""
    if allows(viewer, "viewer"):
        return Scope()
    return Scope(among=tuple(sorted(teams.names(viewer))))
