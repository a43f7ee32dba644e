"""/api/v1/cache-tiers/: what there is; PATCH resizes, DELETE removes an unused tier."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from cachetier import actions, selectors
from cachetier.api.serializers import ResizeSerializer, TierSerializer
from cachetier.errors import Problem, Refused
from cachetier.models import CacheTier


@extend_schema(tags=["cache"])
class Tiers(ListAPIView[CacheTier]):
    serializer_class = TierSerializer

    def get_queryset(self) -> QuerySet[CacheTier]:
        return selectors.tiers()


@extend_schema(tags=["cache"])
class Tier(GenericAPIView[CacheTier]):
    serializer_class = TierSerializer

    def get(self, _request: Request, name: str) -> Response:
        return Response(TierSerializer(_tier(name)).data)

    @extend_schema(request=ResizeSerializer, responses=TierSerializer)
    def patch(self, request: Request, name: str) -> Response:
        """Resize. The node restarts, and what it held is forgotten; requests go on."""
        actions.resize(_user(request), _tier(name).name, _size(request.data))
        return Response(TierSerializer(_tier(name)).data)

    @extend_schema(responses={202: TierSerializer})
    def delete(self, request: Request, name: str) -> Response:
        """Refused with 409 while an endpoint uses it."""
        actions.delete(_user(request), _tier(name).name)
        return Response(TierSerializer(_tier(name)).data, status=202)


def _tier(name: str) -> CacheTier:
    tier = selectors.get(name)
    if tier is None:
        raise Http404
    return tier


def _user(request: Request) -> Any:
    return request.user


def _size(data: Any) -> Any:
    """The only known field; anything else is refused by name."""
    if not isinstance(data, dict):
        raise Refused(Problem("", data, "This is not an object.", "Send a JSON object.", "type"))
    remedy = 'Send {"capacity_bytes": N}.'
    for name, value in data.items():
        if name != "capacity_bytes":
            raise Refused(
                Problem(name, value, f"{name} cannot be changed.", remedy, "unknown_field")
            )
    if "capacity_bytes" not in data:
        raise Refused(Problem("capacity_bytes", None, "It is missing.", remedy, "required"))
    return data["capacity_bytes"]
