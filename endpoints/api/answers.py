"""REST representation of an endpoint and helpers shared by its views."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.parameters import is_dry_run
from console.api.preconditions import expected_generation, with_generation
from console.api.serializers import ErrorSerializer
from console.rehearsal import rehearsal
from endpoints import selectors
from endpoints.api.serializers import AbandonedSerializer, EndpointSerializer, WouldSerializer
from endpoints.manifest_actions import PlannedChange, PlannedVerb, document
from endpoints.models import Endpoint
from endpoints.refusals import bad_body
from endpoints.spec.endpoint_spec import EndpointSpec, FieldChange, SpecErrors, diff
from endpoints.spec.field import Effect

REFUSALS = (400, 404, 409)


F = TypeVar("F", bound=Callable[..., Any])


def operation(
    summary: str, responses: Any = None, *errors: int, tag: str = "endpoints", **more: Any
) -> Callable[[F], F]:
    """Describe a REST operation for the OpenAPI document. `responses`: those of success by status,
    to which the statuses of errors are added. `more`: further arguments of `extend_schema`.
    """
    if errors:
        responses = {**responses, **dict.fromkeys(errors, ErrorSerializer)}
    if responses is not None:
        more["responses"] = responses
    return extend_schema(tags=[tag], summary=summary, **more)


def endpoint_response(name: str, status: int = 200) -> Response:
    endpoint = selectors.get_with_workers(name)
    answer = Response(EndpointSerializer(endpoint).data, status=status)
    return with_generation(answer, endpoint.generation)


def parse_change(request: Request) -> tuple[Any, int | None, Any]:
    """Return the change, the expected generation and the author's note."""
    data, note = split_note(request.data)
    generation = expected_generation(request)
    if isinstance(data, dict) and "generation" in data:
        data = dict(data)
        named = data.pop("generation")
        if isinstance(named, bool) or not isinstance(named, int):
            raise SpecErrors([bad_body("generation", named, "Send the generation as a number.")])
        generation = named
    return data, generation, note


def split_note(data: Any) -> tuple[Any, Any]:
    if not isinstance(data, dict) or "note" not in data:
        return data, ""
    return {name: value for name, value in data.items() if name != "note"}, data["note"]


CHANGED = PolymorphicProxySerializer(
    "EndpointOrDryRun", [EndpointSerializer, WouldSerializer], resource_type_field_name=None
)
REMOVED = PolymorphicProxySerializer(
    "AbandonedOrDryRun", [AbandonedSerializer, WouldSerializer], resource_type_field_name=None
)


def run_verb(
    request: Request,
    name: str,
    act: Callable[..., Endpoint],
    *args: Any,
    status: int = 200,
    **more: Any,
) -> Response:
    """Return the endpoint after the write, or the planned change in a dry run. `act` takes the user
    and the further arguments. With `name` "" the endpoint returned by `act` is used.
    """
    act = partial(act, request.user, *args, **more)
    if is_dry_run(request):
        return Response(dry_run_document(name, act))
    made = act()
    return endpoint_response(made.name, status)


def _team_change(before: Endpoint | None, after: Endpoint) -> tuple[FieldChange, ...]:
    old, new = (
        endpoint.team.slug if endpoint and endpoint.team else None for endpoint in (before, after)
    )
    return (FieldChange("team", "Team", old, new, Effect.LIVE),) if old != new else ()


def dry_run_document(name: str, act: Callable[[], Endpoint]) -> dict[str, Any]:
    with rehearsal():
        stored = Endpoint.objects.filter(name=name).first()
        before = stored.parsed if stored else EndpointSpec(name="", model="")
        after = act()
    changes = (*diff(before, after.parsed), *_team_change(stored, after))
    does = PlannedVerb.UPDATE if changes else PlannedVerb.NOTHING
    if stored is None:
        does = PlannedVerb.CREATE
    elif after.deleting:
        does = PlannedVerb.DELETE
    return {
        "dry_run": True,
        **document(PlannedChange("endpoint", after.name, does, {}, None, changes)),
    }
