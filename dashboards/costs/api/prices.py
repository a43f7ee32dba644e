"""/api/v1/costs/prices/: instance types in use without a price, and their price."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.bodies import read_body
from console.api.serializers import ErrorSerializer
from console.catalogue.core.builtin import Instance
from console.catalogue.selectors import instances_by_name
from dashboards.costs.formulas.price_terms import parse_stored_needs
from dashboards.costs.prices.entry import REMEDY, MissingPrice, list_missing, save_price
from endpoints import selectors


class OfferSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    usd_hour = serializers.FloatField()
    holds = serializers.CharField(help_text="GPUs, vCPUs and memory.")
    price_source = serializers.CharField(source="source")
    date = serializers.DateField(source="day")


class MissingPriceSerializer(serializers.Serializer[Any]):
    instance_type = serializers.CharField(source="machine")
    endpoints = serializers.ListField(child=serializers.CharField())
    holds = serializers.CharField(help_text='"" if the size is unknown.')
    list_prices = OfferSerializer(source="offers", many=True)


class PriceWriteSerializer(serializers.Serializer[Any]):
    usd_hour = serializers.FloatField(required=False, help_text=REMEDY)
    list_price = serializers.CharField(
        default="",
        allow_blank=True,
        help_text="Alternative to usd_hour: instance type whose list price applies.",
    )

    def validate(self, values: dict[str, Any]) -> dict[str, Any]:
        if values["list_price"] and "usd_hour" in values:
            text = "Send usd_hour or list_price, not both."
            raise serializers.ValidationError({"list_price": text}, "conflict")
        return values


class PriceSerializer(serializers.Serializer[Any]):
    instance_type = serializers.CharField(source="name")
    usd_hour = serializers.FloatField(source="price_usd_hour")
    since = serializers.DateField(source="price_date")
    price_source = serializers.CharField()


class Prices(APIView):
    @extend_schema(
        tags=["costs"],
        summary="List instance types without a price",
        responses=MissingPriceSerializer(many=True),
    )
    def get(self, request: Request) -> Response:
        """Instance types of the visible endpoints, with list prices of similar machines."""
        user: Any = request.user
        specs = selectors.endpoints(user).values_list("name", "spec")
        needs = [(name, parse_stored_needs(spec)) for name, spec in specs]
        missing: list[MissingPrice] = list_missing(needs, instances_by_name())
        return Response(MissingPriceSerializer(missing, many=True).data)


class OnePrice(APIView):
    @extend_schema(
        tags=["costs"],
        summary="Set the price of an instance type",
        request=PriceWriteSerializer,
        responses={200: PriceSerializer, 400: ErrorSerializer},
    )
    def put(self, request: Request, name: str) -> Response:
        """The first price applies from the first day of the month, a change from today. The size of
        this machine and of cluster nodes is known; other types are added as instance types.
        """
        data = read_body(PriceWriteSerializer, request.data)
        price = data.get("usd_hour", "")
        made: Instance = save_price(request.user, name, str(price), data["list_price"])
        return Response(PriceSerializer(made).data)
