"""/api/v1/endpoints/: thin over `actions` and `selectors`.

A change may name the generation it was made for, as `If-Match: "3"` or as `generation` in the
body; if the endpoint has moved on, the answer is 409 and nothing is changed.
"""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.shapes import ErrorSerializer
from console.web import request_id
from endpoints import abandoning, actions, selectors
from endpoints.api.serializers import (
    AbandonedSerializer,
    EndpointSerializer,
    EventSerializer,
    KeyNameSerializer,
    KeySerializer,
    NewEndpointSerializer,
    NewKeySerializer,
    RevisionSerializer,
    RollbackSerializer,
    ScaleSerializer,
    WishSerializer,
)
from endpoints.models import Endpoint, EndpointEvent, InferenceKey, Revision
from endpoints.refusals import bad_body
from endpoints.spec import SpecErrors

_IF_MATCH = OpenApiParameter(
    "If-Match", str, "header", description='The generation the change is made for, as "3".'
)
_ABANDON = OpenApiParameter(
    "abandon",
    bool,
    description="Its cluster is gone for good: forget it, and remove nothing there. Refused while "
    "the cluster answers. What may be left has the label emberline.dev/owner=endpoint.NAME.",
)
_REFUSED = {400: ErrorSerializer, 404: ErrorSerializer, 409: ErrorSerializer}
_TAGS = ["endpoints"]
_LONGEST_GENERATION = 18  # digits


class Endpoints(GenericAPIView[Endpoint]):
    write_somewhere = True
    serializer_class = EndpointSerializer

    def get_queryset(self) -> QuerySet[Endpoint]:
        return selectors.with_workers(self.request.user)

    @extend_schema(tags=_TAGS, summary="List endpoints", responses=EndpointSerializer(many=True))
    def get(self, _request: Request) -> Response:
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response([selectors.document(endpoint) for endpoint in page])

    @extend_schema(
        tags=_TAGS,
        summary="Create an endpoint",
        request=NewEndpointSerializer,
        responses={201: EndpointSerializer, 400: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        """Answers at once; `phase` tells how it comes up. Without `team` it is nobody's, or your
        team's where you may make endpoints for that one alone."""
        data, note = _noted(request.data)
        data, team = _with_team(data)
        id_ = request_id.current()
        made = actions.create(request.user, data, team=team, request_id=id_, note=note)
        return shown(made.name, status=201)


class OneEndpoint(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Read an endpoint",
        responses={200: EndpointSerializer, 404: ErrorSerializer},
    )
    def get(self, _request: Request, name: str) -> Response:
        return shown(name)

    @extend_schema(
        tags=_TAGS,
        summary="Replace an endpoint's spec",
        parameters=[_IF_MATCH],
        request=WishSerializer,
        responses={200: EndpointSerializer, **_REFUSED},
    )
    def put(self, request: Request, name: str) -> Response:
        """Fields that are left out get their defaults."""
        data, generation, note = _change(request)
        selectors.get(name)
        actions.update(
            request.user,
            name,
            data,
            expected_generation=generation,
            request_id=request_id.current(),
            note=note,
        )
        return shown(name)

    @extend_schema(
        tags=_TAGS,
        summary="Change some fields of an endpoint",
        parameters=[_IF_MATCH],
        request=WishSerializer(partial=True),
        responses={200: EndpointSerializer, **_REFUSED},
    )
    def patch(self, request: Request, name: str) -> Response:
        """Fields that are left out keep their values."""
        data, generation, note = _change(request)
        actions.patch(
            request.user,
            name,
            data,
            expected_generation=generation,
            request_id=request_id.current(),
            note=note,
        )
        return shown(name)

    @extend_schema(
        tags=_TAGS,
        summary="Delete an endpoint",
        parameters=[_IF_MATCH, _ABANDON],
        responses={200: AbandonedSerializer, 202: EndpointSerializer, **_REFUSED},
    )
    def delete(self, request: Request, name: str) -> Response:
        """Answers at once; the endpoint is Deleting until nothing of it is left, then 404. One that
        is abandoned is gone with the answer (200), which says what may be left."""
        generation, id_ = _if_match(request), request_id.current()
        asked = request.query_params.get("abandon", "false")
        if asked not in ("true", "false"):
            raise SpecErrors([bad_body("abandon", asked, "Send true, or leave it out.")])
        if asked == "true":
            left = abandoning.abandon(
                request.user, name, expected_generation=generation, request_id=id_
            )
            return Response(AbandonedSerializer(left).data)
        actions.delete(request.user, name, expected_generation=generation, request_id=id_)
        return shown(name, status=202)


class Scale(GenericAPIView[Endpoint]):
    serializer_class = ScaleSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Change the number of workers",
        parameters=[_IF_MATCH],
        responses={200: EndpointSerializer, **_REFUSED},
    )
    def post(self, request: Request, name: str) -> Response:
        data, generation, _ = _change(request, noted=False)
        replicas = only(data, "replicas")
        actions.scale(
            request.user,
            name,
            replicas,
            expected_generation=generation,
            request_id=request_id.current(),
        )
        return shown(name)


class Pause(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Stop all workers, keep the configuration",
        request=None,
        responses={200: EndpointSerializer, **_REFUSED},
    )
    def post(self, request: Request, name: str) -> Response:
        actions.pause(request.user, name, request_id=request_id.current())
        return shown(name)


class Resume(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Want as many workers as before the pause",
        request=None,
        responses={200: EndpointSerializer, **_REFUSED},
    )
    def post(self, request: Request, name: str) -> Response:
        actions.resume(request.user, name, request_id=request_id.current())
        return shown(name)


class Rollback(GenericAPIView[Endpoint]):
    serializer_class = RollbackSerializer

    @extend_schema(
        tags=_TAGS,
        summary="Want again what an earlier revision wanted",
        parameters=[_IF_MATCH],
        responses={200: EndpointSerializer, **_REFUSED},
    )
    def post(self, request: Request, name: str) -> Response:
        data, generation, note = _change(request)
        number = only(data, "revision")
        if isinstance(number, bool) or not isinstance(number, int):
            raise SpecErrors([bad_body("revision", number, "Send the number of a revision.")])
        actions.rollback(
            request.user,
            name,
            number,
            expected_generation=generation,
            request_id=request_id.current(),
            note=note,
        )
        return shown(name)


@extend_schema(tags=_TAGS, summary="What happened, latest first")
class Events(ListAPIView[EndpointEvent]):
    serializer_class = EventSerializer

    def get_queryset(self) -> QuerySet[EndpointEvent]:
        if getattr(self, "swagger_fake_view", False):
            return EndpointEvent.objects.none()
        return selectors.events(selectors.get(self.kwargs["name"]))


@extend_schema(tags=_TAGS, summary="Revisions, latest first")
class Revisions(ListAPIView[Revision]):
    serializer_class = RevisionSerializer

    def get_queryset(self) -> QuerySet[Revision]:
        if getattr(self, "swagger_fake_view", False):
            return Revision.objects.none()
        return selectors.revisions(selectors.get(self.kwargs["name"]))


class Keys(GenericAPIView[InferenceKey]):
    serializer_class = KeySerializer

    @extend_schema(
        tags=_TAGS, summary="Keys of an endpoint's callers", responses=KeySerializer(many=True)
    )
    def get(self, _request: Request, name: str) -> Response:
        page = self.paginate_queryset(selectors.living_keys(selectors.get(name)))
        return self.get_paginated_response(KeySerializer(page, many=True).data)

    @extend_schema(
        tags=_TAGS,
        summary="Make a key",
        request=KeyNameSerializer,
        responses={201: NewKeySerializer, **_REFUSED},
    )
    def post(self, request: Request, name: str) -> Response:
        """The key itself is in this answer and nowhere else."""
        label = only(request.data, "name")
        made = actions.create_key(request.user, name, label, request_id=request_id.current())
        body = {**KeySerializer(made.key).data, "key": made.clear}
        return Response(body, status=201, headers={"Cache-Control": "no-store"})


class OneKey(GenericAPIView[InferenceKey]):
    serializer_class = KeySerializer

    @extend_schema(
        tags=_TAGS,
        summary="Revoke a key",
        responses={204: None, 404: ErrorSerializer, 409: ErrorSerializer},
    )
    def delete(self, request: Request, name: str, key_id: str) -> Response:
        """The router refuses it within seconds."""
        actions.revoke_key(request.user, name, key_id, request_id=request_id.current())
        return Response(status=204)


def shown(name: str, status: int = 200) -> Response:
    endpoint = selectors.one(name)
    body = EndpointSerializer(endpoint).data
    return Response(body, status=status, headers={"ETag": f'"{endpoint.generation}"'})


def _change(request: Request, *, noted: bool = True) -> tuple[Any, int | None, Any]:
    """The change itself, the generation it was made for, and what its author says of it."""
    data, note = _noted(request.data) if noted else (request.data, "")
    generation = _if_match(request)
    if isinstance(data, dict) and "generation" in data:
        data = dict(data)
        named = data.pop("generation")
        if isinstance(named, bool) or not isinstance(named, int):
            raise SpecErrors([bad_body("generation", named, "Send the generation as a number.")])
        generation = named
    return data, generation, note


def _noted(data: Any) -> tuple[Any, Any]:
    """The note is not of the spec."""
    if not isinstance(data, dict) or "note" not in data:
        return data, ""
    return {name: value for name, value in data.items() if name != "note"}, data["note"]


def _with_team(data: Any) -> tuple[Any, str | None]:
    """The spec, and the slug of the team which the endpoint is to belong to."""
    if not isinstance(data, dict) or "team" not in data:
        return data, None
    data = dict(data)
    team = data.pop("team")
    if team is not None and not isinstance(team, str):
        raise SpecErrors([bad_body("team", team, "Send the slug of a team.")])
    return data, team


def _if_match(request: Request) -> int | None:
    text = request.headers.get("If-Match", "").strip()
    if text in ("", "*"):
        return None
    number = text.removeprefix("W/").strip('"')
    if not number.isdecimal() or len(number) > _LONGEST_GENERATION:
        raise SpecErrors([bad_body("If-Match", text, 'Send the generation, such as "3".')])
    return int(number)


def only(data: Any, name: str) -> Any:
    """The one field a request may hold."""
    if not isinstance(data, dict):
        raise SpecErrors([bad_body("", data, f'Send an object with "{name}".')])
    for other, value in data.items():
        if other != name:
            raise SpecErrors([bad_body(other, value, f'Send only "{name}".', "unknown_field")])
    if name not in data:
        raise SpecErrors([bad_body(name, None, f'Send "{name}".', "required")])
    return data[name]
