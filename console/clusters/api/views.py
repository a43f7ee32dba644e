"""/api/v1/clusters/: what each can carry and grants; add, change, check, remove."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView, ListCreateAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.clusters import actions, selectors
from console.clusters.api import serializers
from console.clusters.models import Cluster
from console.refusals import Problem, Refused


@extend_schema(tags=["clusters"])
class Clusters(ListCreateAPIView[Cluster]):
    serializer_class = serializers.ClusterSerializer

    def get_queryset(self) -> QuerySet[Cluster]:
        return selectors.clusters()

    def get_serializer_context(self) -> dict[str, Any]:
        return {
            **super().get_serializer_context(),
            "users": selectors.users_seen(self.request.user),
        }

    @extend_schema(
        request=serializers.ClusterAddSerializer,
        responses={201: serializers.ClusterSerializer},
    )
    def post(self, request: Request, *_args: Any, **_kwargs: Any) -> Response:
        """Needs the admin role. What it can carry is there once its phase is no longer Pending."""
        data = dict(_object(request.data))
        made = actions.add(_user(request), data.pop("name", None), data)
        return _shown(request, made.name, 201)


@extend_schema(tags=["clusters"])
class One(GenericAPIView[Cluster]):
    serializer_class = serializers.ClusterSerializer

    def get(self, request: Request, name: str) -> Response:
        return _shown(request, name)

    @extend_schema(
        request=serializers.ClusterChangeSerializer, responses=serializers.ClusterSerializer
    )
    def patch(self, request: Request, name: str) -> Response:
        """Needs the admin role. What runs there stays."""
        data = _object(request.data)
        if not data:
            remedy = "Send at least one field to change, such as namespace."
            raise Refused(Problem("", None, "Nothing is to be changed.", remedy, "required"))
        actions.change(_user(request), _found(name).name, data)
        return _shown(request, name)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, name: str) -> Response:
        """Needs the admin role. Refused with 409 while anything is placed there."""
        actions.remove(_user(request), _found(name).name)
        return Response(status=204)


@extend_schema(tags=["clusters"])
class Check(GenericAPIView[Cluster]):
    serializer_class = serializers.ClusterSerializer

    @extend_schema(request=None, responses={202: serializers.ClusterSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Ask the cluster again now; `seen_at` tells when it has answered."""
        actions.check(_user(request), _found(name).name)
        return _shown(request, name, 202)


def _found(name: str) -> Cluster:
    cluster = selectors.get(name)
    if cluster is None:
        raise Http404
    return cluster


def _shown(request: Request, name: str, status: int = 200) -> Response:
    seen = serializers.ClusterSerializer(_found(name), context={"request": request})
    return Response(seen.data, status=status)


def _user(request: Request) -> Any:
    return request.user


def _object(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise Refused(Problem("", None, "This is not an object.", "Send a JSON object.", "type"))
    return data
