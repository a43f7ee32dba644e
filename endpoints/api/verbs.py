"""/api/v1/endpoints/NAME/scale|move|pause|resume|rollback/: verbs of an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import Serializer

from console.api.bodies import read_body
from console.api.parameters import DRY_RUN, IF_MATCH
from console.api.preconditions import expected_generation
from endpoints import actions, teams
from endpoints.api.answers import CHANGED, F, operation, run_verb
from endpoints.api.serializers import (
    EndpointSerializer,
    MoveSerializer,
    RollbackSerializer,
    ScaleSerializer,
)
from endpoints.models import Endpoint


def _verb(summary: str, *parameters: OpenApiParameter, **more: Any) -> Callable[[F], F]:
    parameters = (*parameters, DRY_RUN)
    return operation(summary, {200: CHANGED}, 409, parameters=list(parameters), **more)


class Scale(GenericAPIView[Endpoint]):
    serializer_class = ScaleSerializer

    @_verb("Change the number of workers", IF_MATCH)
    def post(self, request: Request, name: str) -> Response:
        data, generation = _read(ScaleSerializer, request)
        return run_verb(
            request, name, actions.scale, name, data["replicas"], expected_generation=generation
        )


class Move(GenericAPIView[Endpoint]):
    serializer_class = MoveSerializer

    @_verb("Move an endpoint to another team")
    def post(self, request: Request, name: str) -> Response:
        """Needs the operator role for both teams; null removes the team and needs the role
        everywhere. Nothing is restarted.
        """
        slug = read_body(MoveSerializer, request.data)["team"]
        return run_verb(request, name, teams.move, name, slug)


class Pause(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @_verb("Pause an endpoint", request=None)
    def post(self, request: Request, name: str) -> Response:
        read_body(Serializer, request.data)
        return run_verb(request, name, actions.pause, name)


class Resume(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @_verb("Resume an endpoint", request=None)
    def post(self, request: Request, name: str) -> Response:
        read_body(Serializer, request.data)
        return run_verb(request, name, actions.resume, name)


class Rollback(GenericAPIView[Endpoint]):
    serializer_class = RollbackSerializer

    @_verb("Roll back to an earlier revision", IF_MATCH)
    def post(self, request: Request, name: str) -> Response:
        data, generation = _read(RollbackSerializer, request)
        return run_verb(
            request,
            name,
            actions.rollback,
            name,
            data["revision"],
            expected_generation=generation,
            note=data["note"],
        )


def _read(kind: type[Serializer[Any]], request: Request) -> tuple[dict[str, Any], int | None]:
    """Return the body and the expected generation: its own, else that of If-Match."""
    data = read_body(kind, request.data)
    generation = expected_generation(request)
    return data, data.get("generation", generation)
