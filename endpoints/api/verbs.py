"""/api/v1/endpoints/NAME/scale|move|pause|resume|rollback/: verbs of an endpoint."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.parameters import DRY_RUN, IF_MATCH
from console.api.serializers import ErrorSerializer
from console.core import request_log
from endpoints import actions, teams
from endpoints.api.answers import CHANGED, parse_change, parse_only_field, require_empty, run_verb
from endpoints.api.serializers import (
    EndpointSerializer,
    MoveSerializer,
    RollbackSerializer,
    ScaleSerializer,
)
from endpoints.models import Endpoint
from endpoints.refusals import bad_body
from endpoints.spec.endpoint_spec import SpecErrors

_TAGS = ["endpoints"]
_ANSWERS = {200: CHANGED, 409: ErrorSerializer}


class Scale(GenericAPIView[Endpoint]):
    serializer_class = ScaleSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Change the number of workers",
        parameters=[IF_MATCH, DRY_RUN],
        responses=_ANSWERS,
    )
    def post(self, request: Request, name: str) -> Response:
        data, generation, _ = parse_change(request, noted=False)
        replicas = parse_only_field(data, "replicas")
        return run_verb(
            request,
            name,
            lambda: actions.scale(
                request.user,
                name,
                replicas,
                expected_generation=generation,
                request_id=request_log.current_id(),
            ),
        )


class Move(GenericAPIView[Endpoint]):
    serializer_class = MoveSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Move an endpoint to another team",
        parameters=[DRY_RUN],
        responses=_ANSWERS,
    )
    def post(self, request: Request, name: str) -> Response:
        """Needs the operator role for both teams; null removes the team and needs the role
        everywhere. Nothing is restarted.
        """
        slug, id_ = parse_only_field(request.data, "team"), request_log.current_id()
        return run_verb(request, name, lambda: teams.move(request.user, name, slug, request_id=id_))


class Pause(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Stop all workers, keep the configuration",
        parameters=[DRY_RUN],
        request=None,
        responses=_ANSWERS,
    )
    def post(self, request: Request, name: str) -> Response:
        require_empty(request.data)
        id_ = request_log.current_id()
        return run_verb(request, name, lambda: actions.pause(request.user, name, request_id=id_))


class Resume(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Want as many workers as before the pause",
        parameters=[DRY_RUN],
        request=None,
        responses=_ANSWERS,
    )
    def post(self, request: Request, name: str) -> Response:
        require_empty(request.data)
        id_ = request_log.current_id()
        return run_verb(request, name, lambda: actions.resume(request.user, name, request_id=id_))


class Rollback(GenericAPIView[Endpoint]):
    serializer_class = RollbackSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Want again what an earlier revision wanted",
        parameters=[IF_MATCH, DRY_RUN],
        responses=_ANSWERS,
    )
    def post(self, request: Request, name: str) -> Response:
        data, generation, note = parse_change(request)
        number = parse_only_field(data, "revision")
        if isinstance(number, bool) or not isinstance(number, int):
            raise SpecErrors([bad_body("revision", number, "Send the number of a revision.")])
        return run_verb(
            request,
            name,
            lambda: actions.rollback(
                request.user,
                name,
                number,
                expected_generation=generation,
                request_id=request_log.current_id(),
                note=note,
            ),
        )
