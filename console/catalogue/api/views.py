"""/api/v1/instance-types/: sizes and prices of instance types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.parameters import IF_MATCH
from console.api.preconditions import require_match
from console.catalogue import actions, selectors
from console.catalogue.core import rules
from console.catalogue.core.rules import FIELDS
from console.catalogue.models import InstancePrice
from console.catalogue.selectors import Entry
from console.core.errors import Problem, Refused


class InstanceTypeWriteSerializer(serializers.Serializer[Any]):
    vcpus = serializers.IntegerField(required=False, help_text=FIELDS["vcpus"])
    memory_gib = serializers.FloatField(required=False, help_text=FIELDS["memory_gib"])
    gpu = serializers.CharField(required=False, allow_blank=True, help_text=FIELDS["gpu"])
    gpus = serializers.IntegerField(required=False, help_text=FIELDS["gpus"])
    gpu_memory_gib = serializers.FloatField(required=False, help_text=FIELDS["gpu_memory_gib"])
    price_usd_hour = serializers.FloatField(
        required=False, allow_null=True, help_text=FIELDS["price_usd_hour"]
    )
    price_date = serializers.DateField(
        required=False, allow_null=True, help_text=FIELDS["price_date"]
    )
    price_source = serializers.CharField(
        required=False, allow_blank=True, help_text=FIELDS["price_source"]
    )


class InstanceTypeSerializer(InstanceTypeWriteSerializer):
    name = serializers.CharField()
    origin = serializers.ChoiceField(choices=("built-in", "changed", "added"))
    changed_by = serializers.CharField()


class InstanceTypes(GenericAPIView[Any]):
    serializer_class = InstanceTypeSerializer

    @extend_schema(
        tags=["instance types"],
        summary="List instance types",
        responses=InstanceTypeSerializer(many=True),
    )
    def get(self, _request: Request) -> Response:
        """Sorted by name."""
        page = self.paginate_queryset(selectors.list_entries()) or []
        return self.get_paginated_response([_document(entry) for entry in page])


class InstancePriceSerializer(serializers.ModelSerializer[InstancePrice]):
    changed_by = serializers.CharField(source="changed_by.username", default="")

    class Meta:
        model = InstancePrice
        fields = ("since", "price_usd_hour", "source", "changed_at", "changed_by")
        read_only_fields = fields


class InstancePrices(GenericAPIView[InstancePrice]):
    serializer_class = InstancePriceSerializer

    def get_queryset(self) -> QuerySet[InstancePrice]:
        return selectors.price_history(self.kwargs["name"])

    @extend_schema(
        tags=["instance types"],
        summary="List an instance type's prices over time",
        responses=InstancePriceSerializer(many=True),
    )
    def get(self, _request: Request, name: str) -> Response:
        """Prices set for the instance type, latest first; each applies until the next."""
        _entry(name)
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(self.get_serializer(page, many=True).data)


@extend_schema(tags=["instance types"])
class InstanceTypeView(APIView):
    @extend_schema(summary="Read an instance type", responses=InstanceTypeSerializer)
    def get(self, _request: Request, name: str) -> Response:
        return Response(_document(_entry(name)))

    @extend_schema(
        summary="Add or change an instance type",
        parameters=[IF_MATCH],
        request=InstanceTypeWriteSerializer,
        responses=InstanceTypeSerializer,
    )
    def put(self, request: Request, name: str) -> Response:
        """Add the instance type or change the given fields."""
        data = request.data
        if not isinstance(data, Mapping):
            text = "An instance type must be a JSON object."
            raise Refused(Problem("", None, text, "Send a JSON object.", "type"))
        _require_match(request, name)
        actions.save_instance_type(actor_of(request), name, dict(data))
        return Response(_document(_entry(name)))

    @extend_schema(
        summary="Remove or reset an instance type", parameters=[IF_MATCH], responses={204: None}
    )
    def delete(self, request: Request, name: str) -> Response:
        """Delete an added type, or reset a built-in one."""
        _require_match(request, name)
        actions.remove_instance_type(actor_of(request), name)
        return Response(status=204)


def _require_match(request: Request, name: str) -> None:
    """Check If-Match; a missing type matches no ETag."""
    found = selectors.get(name)
    require_match(request, _document(found) if found else None)


def _document(entry: Entry) -> dict[str, Any]:
    return {
        "name": entry.instance.name,
        **rules.to_data(entry.instance),
        "origin": entry.origin,
        "changed_by": entry.changed_by,
    }


def _entry(name: str) -> Entry:
    found = selectors.get(name)
    if found is None:
        raise NotFound(f"Instance type {name} does not exist.")
    return found
