"""/api/v1/budgets/, cost-reports/ and tier-prices/."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.parameters import IF_MATCH, Filter
from console.api.preconditions import require_match
from console.api.serializers import ErrorSerializer
from console.core.errors import expect_object
from console.resources.api import make_serializers
from console.resources.rest import Resource
from dashboards.costs import actions, budgets, selectors
from dashboards.costs.actions import BUDGET_FIELDS, PRICE_FIELDS
from dashboards.costs.ledger import months
from dashboards.costs.models import TierPrice, Whose
from dashboards.costs.reports import monthly
from dashboards.costs.reports.shares import WEIGHT

_TAGS = ["costs"]


BudgetSerializer, BudgetWriteSerializer = make_serializers(
    BUDGET_FIELDS,
    ("id", "created_by", "changed_at"),
    created_by=serializers.CharField(source="created_by.username", default="", read_only=True),
)


class BudgetStateSerializer(serializers.Serializer[Any]):
    budget = serializers.CharField(source="budget.name")
    spent_usd = serializers.FloatField(
        source="spent", help_text="This month (UTC), priced usage only."
    )
    foreseen_usd = serializers.FloatField(
        source="foreseen", allow_null=True, help_text="At the end of the month; null: no data yet."
    )
    used_ratio = serializers.FloatField(source="used")
    forecast_ratio = serializers.FloatField(source="forecast", allow_null=True)
    unpriced = serializers.BooleanField(help_text="Some usage has no price and is not included.")


BUDGETS = Resource(
    path="budgets",
    key="uuid:budget_id",
    noun="budget",
    tag="costs",
    about={
        "create": "Needs the operator role for the budget's subject.",
        "change": "Omitted fields keep their values.",
    },
    document=BudgetSerializer,
    new=BudgetWriteSerializer,
    changed=BudgetWriteSerializer,
    rows=budgets.budgets,
    find=actions.get_budget,
    filters=(Filter("whose", "whose", "Scope of the budget.", choices=Whose.values),),
    create=lambda actor, data: actions.save_budget(actor, None, data),
    change=actions.save_budget,
    delete=actions.delete_budget,
    facts=BUDGET_FIELDS.values,
    labels={name: (name, "live") for name in BUDGET_FIELDS.names},
    generation=False,
    view={"write_somewhere": True},
)


class BudgetStateView(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read the spending of a budget",
        responses={200: BudgetStateSerializer, 404: ErrorSerializer},
    )
    def get(self, request: Request, budget_id: UUID) -> Response:
        """Values up to the last full hour measured."""
        budget = actions.get_budget(request.user, budget_id)
        (state,) = budgets.budget_states([budget], timezone.now())
        return Response(BudgetStateSerializer(state).data)


class MonthSerializer(serializers.Serializer[Any]):
    month = serializers.CharField(help_text="Such as 2026-11.")
    hours_due = serializers.IntegerField(help_text="Elapsed hours.")
    hours_measured = serializers.FloatField()


class CostReportSerializer(serializers.Serializer[Any]):
    month = serializers.CharField()
    coverage = serializers.DictField(
        help_text="Elapsed, queried and scraped hours, and their share."
    )
    missing = serializers.CharField(
        help_text='Amounts not included in the sums; "": complete. A sum without any price is null.'
    )
    total = serializers.DictField()
    groups = serializers.DictField(help_text="By endpoint, team, tag:KEY, model and machine.")
    tiers = serializers.DictField(help_text="Share of each team by cache tier.")
    keys = serializers.DictField(help_text="Busy cost by inference key, split by weight.")


class Months(APIView):
    @extend_schema(
        tags=_TAGS, summary="Months with a cost report", responses=MonthSerializer(many=True)
    )
    def get(self, _request: Request) -> Response:
        """Latest first, without pagination."""
        now = timezone.now()
        coverages = months.coverages(months.stored_months(now), now)
        return Response(
            [
                {"month": month.key, "hours_due": coverage.due, "hours_measured": coverage.scraped}
                for month, coverage in coverages.items()
            ]
        )


class CostReport(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Cost report of a month",
        parameters=[
            OpenApiParameter(
                "weight",
                {"type": "number", "minimum": 0, "maximum": 1000, "default": WEIGHT},
                description="Weight of an output token relative to a prompt token.",
            )
        ],
        responses={200: CostReportSerializer, 400: ErrorSerializer, 404: ErrorSerializer},
    )
    def get(self, request: Request, month: str) -> Response:
        """Limited to what you may see. Sums exclude unknown values; `missing` lists them."""
        month_value = months.parse_month(month)
        if month_value is None:
            raise NotFound("A month is written as 2026-11.")
        user: Any = request.user
        report = monthly.report(
            month_value, timezone.now(), user, float(request.query_params.get("weight", WEIGHT))
        )
        return Response(monthly.report_document(report))


TierPriceSerializer, TierPriceWriteSerializer = make_serializers(PRICE_FIELDS, ("changed_at",))


class TierPrices(GenericAPIView[TierPrice]):
    serializer_class = TierPriceSerializer

    def get_queryset(self) -> QuerySet[TierPrice]:
        return selectors.last_tier_prices()

    @extend_schema(
        tags=_TAGS, summary="List cache tier prices", responses=TierPriceSerializer(many=True)
    )
    def get(self, _request: Request) -> Response:
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(TierPriceSerializer(page, many=True).data)


@extend_schema(tags=_TAGS)
class OneTierPrice(APIView):
    @extend_schema(
        summary="Read a cache tier's price",
        responses={200: TierPriceSerializer, 404: ErrorSerializer},
    )
    def get(self, _request: Request, name: str) -> Response:
        return Response(TierPriceSerializer(_price(name)).data)

    @extend_schema(
        summary="Set the price of a cache tier",
        parameters=[IF_MATCH],
        request=TierPriceWriteSerializer,
        responses={200: TierPriceSerializer, 400: ErrorSerializer},
    )
    def put(self, request: Request, name: str) -> Response:
        """Omitted fields keep their values, except `since`, which defaults to today. An external
        Redis is named redis:HOST:PORT.
        """
        data = dict(expect_object(request.data))
        with _require_match(request, name):
            made = actions.save_tier_price(request.user, name, data)
        return Response(TierPriceSerializer(made).data)

    @extend_schema(
        summary="Remove the price of a cache tier",
        parameters=[IF_MATCH],
        responses={204: None, 404: ErrorSerializer},
    )
    def delete(self, request: Request, name: str) -> Response:
        """From today on; earlier days keep their price."""
        with _require_match(request, name):
            actions.clear_tier_price(request.user, name)
        return Response(status=204)


def _require_match(request: Request, name: str) -> AbstractContextManager[None]:
    def read() -> Any:
        price = selectors.last_tier_price(name)
        return TierPriceSerializer(price).data if price else None

    return require_match(request, TierPrice.objects.filter(name=name), read)


class TierPriceHistory(APIView):
    @extend_schema(
        tags=_TAGS,
        summary="Read the price history of a cache tier",
        responses={200: TierPriceSerializer(many=True), 404: ErrorSerializer},
    )
    def get(self, _request: Request, name: str) -> Response:
        """Latest first; a row without a price ends the previous one."""
        data = TierPriceSerializer(selectors.tier_prices(name), many=True).data
        if not data:
            raise NotFound(f"{name} has no price.")
        return Response(data)


def _price(name: str) -> TierPrice:
    price = selectors.last_tier_price(name)
    if price is None:
        raise NotFound(f"{name} has no price.")
    return price
