"""REST representation of an endpoint and helpers shared by its views."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.bodies import read_body
from console.api.parameters import is_dry_run
from console.api.preconditions import expected_generation, with_generation
from console.api.serializers import ErrorSerializer
from console.rehearsal import rehearsal
from endpoints import selectors
from endpoints.api.serializers import AbandonedSerializer, EndpointSerializer, WouldSerializer
from endpoints.manifest_actions import PlannedChange, PlannedVerb, document
from endpoints.models import Endpoint
from endpoints.refusals import LONGEST_NOTE
from endpoints.spec.endpoint_spec import EndpointSpec, FieldChange, diff
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
    data, options = split_options(request.data, "note", "generation")
    generation = expected_generation(request)
    return data, options.get("generation", generation), options.get("note", "")


class WriteOptionsSerializer(serializers.Serializer[Any]):
    """What a write of a spec may contain beside the spec."""

    note = serializers.CharField(allow_blank=True, max_length=LONGEST_NOTE, help_text="Reason.")
    generation = serializers.IntegerField()
    team = serializers.CharField(allow_null=True, allow_blank=True, help_text="Slug of a team.")


def split_options(data: Any, *names: str) -> tuple[Any, dict[str, Any]]:
    """Return the spec and the named options of a body."""
    if not isinstance(data, dict):
        return data, {}
    options = {name: data[name] for name in names if name in data}
    spec = {name: value for name, value in data.items() if name not in options}
    return spec, read_body(WriteOptionsSerializer, options, partial=True)


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
