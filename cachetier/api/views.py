"""/api/v1/cache-tiers/: what there is and what it holds; create, change, flush, delete."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListCreateAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from cachetier import actions, selectors
from cachetier.api import serializers
from cachetier.errors import Problem, Refused
from cachetier.models import CacheTier


@extend_schema(tags=["cache"])
class Tiers(ListCreateAPIView[CacheTier]):
    serializer_class = serializers.TierSerializer

    def get_queryset(self) -> QuerySet[CacheTier]:
        return selectors.tiers()

    def get_serializer_context(self) -> dict[str, Any]:
        return {
            **super().get_serializer_context(),
            "users": selectors.users_seen(self.request.user),
        }

    @extend_schema(
        request=serializers.CreateSerializer, responses={201: serializers.TierSerializer}
    )
    def post(self, request: Request, *_args: Any, **_kwargs: Any) -> Response:
        """A tier starts at once; it serves when its phase is Ready."""
        data = dict(_object(request.data))
        made = actions.create(_user(request), data.pop("name", None), data)
        return _shown(request, made.name, status=201)


@extend_schema(tags=["cache"])
class Tier(GenericAPIView[CacheTier]):
    serializer_class = serializers.TierSerializer

    def get(self, request: Request, name: str) -> Response:
        return _shown(request, name)

    @extend_schema(request=serializers.ChangeSerializer, responses=serializers.TierSerializer)
    def patch(self, request: Request, name: str) -> Response:
        """Requests go on whatever changes; each field says what restarts."""
        data = _object(request.data)
        if not data:
            remedy = "Send at least one field to change, such as memory_bytes."
            raise Refused(Problem("", None, "Nothing is to be changed.", remedy, "required"))
        actions.change(_user(request), _tier(name).name, data)
        return _shown(request, name)

    @extend_schema(responses={202: serializers.TierSerializer})
    def delete(self, request: Request, name: str) -> Response:
        """Refused with 409 while an endpoint uses it."""
        actions.delete(_user(request), _tier(name).name)
        return _shown(request, name, status=202)


@extend_schema(tags=["cache"])
class Contents(GenericAPIView[CacheTier]):
    serializer_class = serializers.ContentsSerializer

    def get(self, request: Request, name: str) -> Response:
        """What the tier holds by namespace, and what other sizes would find."""
        found = selectors.detail(_tier(name), request.user)
        return Response(serializers.ContentsSerializer(found).data)


@extend_schema(tags=["cache"])
class Flush(GenericAPIView[CacheTier]):
    serializer_class = serializers.FlushSerializer

    @extend_schema(
        request=serializers.FlushSerializer, responses={200: serializers.FlushedSerializer}
    )
    def post(self, request: Request, name: str) -> Response:
        """Forget a namespace on every node. 502 names the nodes which did not answer."""
        data = _object(request.data)
        if "namespace" not in data:
            remedy = 'Send {"namespace": "..."}; "" forgets everything.'
            raise Refused(Problem("namespace", None, "It is missing.", remedy, "required"))
        dropped = actions.flush(_user(request), _tier(name).name, data["namespace"])
        return Response({"dropped": dropped})


def _shown(request: Request, name: str, status: int = 200) -> Response:
    seen = serializers.TierSerializer(_tier(name), context={"request": request})
    return Response(seen.data, status=status)


def _tier(name: str) -> CacheTier:
    tier = selectors.get(name)
    if tier is None:
        raise Http404
    return tier


def _user(request: Request) -> Any:
    return request.user


def _object(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise Refused(Problem("", data, "This is not an object.", "Send a JSON object.", "type"))
    return data
