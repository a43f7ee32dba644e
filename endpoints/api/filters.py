"""What lists of endpoints may be narrowed by."""

from __future__ import annotations

from django.db.models import Q

from console.api.filters import Filter
from endpoints.choices import Phase
from endpoints.spec.fields import STRATEGIES


def _in_phase(value: str) -> Q:
    """Deleting from the moment it is asked for, as it is shown."""
    if value == Phase.DELETING:
        return Q(deleted_at__isnull=False)
    return Q(deleted_at__isnull=True, status__phase=value)


FILTERS = (
    Filter("search", ("name__icontains", "spec__model__icontains"), "In the name or the model."),
    Filter("phase", _in_phase, "In this phase.", choices=[str(phase) for phase in Phase]),
    Filter("strategy", "spec__routing__strategy", "Routed this way.", choices=STRATEGIES),
    Filter("cluster", "spec__placement__cluster", "On this cluster."),
    Filter("team", "team__slug", "Of this team, by its slug."),
    Filter("model", "spec__model", "Of exactly this model."),
)
