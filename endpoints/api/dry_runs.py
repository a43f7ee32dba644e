"""`?dry_run=true` on a write of an endpoint: the write itself, rehearsed and not kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import PolymorphicProxySerializer
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.parameters import dry_run
from console.rehearsal import rehearsal
from endpoints.api.answers import shown
from endpoints.api.serializers import AbandonedSerializer, EndpointSerializer, WouldSerializer
from endpoints.manifest_actions import Does, Planned, document
from endpoints.models import Endpoint
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.fields import Effect
from endpoints.spec_diff import Change, diff

CHANGED = PolymorphicProxySerializer(
    "EndpointOrDryRun", [EndpointSerializer, WouldSerializer], resource_type_field_name=None
)
REMOVED = PolymorphicProxySerializer(
    "AbandonedOrDryRun", [AbandonedSerializer, WouldSerializer], resource_type_field_name=None
)


def carried_out(
    request: Request, name: str, act: Callable[[], Endpoint], status: int = 200
) -> Response:
    """The endpoint after the write, or what the write would change. `name` "": the write tells."""
    if dry_run(request):
        return Response(would(name, act))
    made = act()
    return shown(made.name, status)


def _moved(before: Endpoint | None, after: Endpoint) -> tuple[Change, ...]:
    old, new = (one.team.slug if one and one.team else None for one in (before, after))
    return (Change("team", "Team", old, new, Effect.LIVE),) if old != new else ()


def would(name: str, act: Callable[[], Endpoint]) -> dict[str, Any]:
    with rehearsal():
        stored = Endpoint.objects.filter(name=name).first()
        before = stored.parsed if stored else EndpointSpec(name="", model="")
        after = act()
    changes = (*diff(before, after.parsed), *_moved(stored, after))
    does = Does.UPDATE if changes else Does.NOTHING
    if stored is None:
        does = Does.CREATE
    elif after.deleting:
        does = Does.DELETE
    return {"dry_run": True, **document(Planned("endpoint", after.name, does, {}, None, changes))}
