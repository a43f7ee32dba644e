"""/api/v1/endpoints/NAME/scale|move|pause|resume|rollback/: verbs of an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.parameters import DRY_RUN, IF_MATCH
from endpoints import actions, teams
from endpoints.api.answers import (
    CHANGED,
    F,
    operation,
    parse_change,
    parse_only_field,
    require_empty,
    run_verb,
)
from endpoints.api.serializers import (
    EndpointSerializer,
    MoveSerializer,
    RollbackSerializer,
    ScaleSerializer,
)
from endpoints.models import Endpoint
from endpoints.refusals import bad_body
from endpoints.spec.endpoint_spec import SpecErrors


def _verb(summary: str, *parameters: OpenApiParameter, **more: Any) -> Callable[[F], F]:
    parameters = (*parameters, DRY_RUN)
    return operation(summary, {200: CHANGED}, 409, parameters=list(parameters), **more)


class Scale(GenericAPIView[Endpoint]):
    serializer_class = ScaleSerializer

    @_verb("Change the number of workers", IF_MATCH)
    def post(self, request: Request, name: str) -> Response:
        data, generation, _ = parse_change(request, noted=False)
        replicas = parse_only_field(data, "replicas")
        return run_verb(
            request, name, actions.scale, name, replicas, expected_generation=generation
        )


class Move(GenericAPIView[Endpoint]):
    serializer_class = MoveSerializer

    @_verb("Move an endpoint to another team")
    def post(self, request: Request, name: str) -> Response:
        """Needs the operator role for both teams; null removes the team and needs the role
        everywhere. Nothing is restarted.
        """
        slug = parse_only_field(request.data, "team")
        return run_verb(request, name, teams.move, name, slug)


class Pause(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @_verb("Pause an endpoint", request=None)
    def post(self, request: Request, name: str) -> Response:
        require_empty(request.data)
        return run_verb(request, name, actions.pause, name)


class Resume(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @_verb("Resume an endpoint", request=None)
    def post(self, request: Request, name: str) -> Response:
        require_empty(request.data)
        return run_verb(request, name, actions.resume, name)


class Rollback(GenericAPIView[Endpoint]):
    serializer_class = RollbackSerializer

    @_verb("Roll back to an earlier revision", IF_MATCH)
    def post(self, request: Request, name: str) -> Response:
        data, generation, note = parse_change(request)
        number = parse_only_field(data, "revision")
        if isinstance(number, bool) or not isinstance(number, int):
            raise SpecErrors([bad_body("revision", number, "Send the number of a revision.")])
        return run_verb(
            request, name, actions.rollback, name, number, expected_generation=generation, note=note
        )
