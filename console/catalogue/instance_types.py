"""The kind "instance type": size and price of machines, built in, changed or added."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date
from typing import Any

from django.db.models import QuerySet
from django.template.defaultfilters import date as format_day
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.html import format_html
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView

from console.accounts.credentials import stored_actor
from console.catalogue import selectors
from console.catalogue.core.builtin import BUILTIN
from console.catalogue.models import InstancePrice, InstanceType
from console.core.disk import format_bytes
from console.core.money import format_usd
from console.resources import api, pages
from console.resources.fields import ModelFields
from console.resources.kind import Column, Kind
from console.web.shell.cards import Card, Fact


def _name(row: InstanceType) -> str:
    text = format_html('<span class="font-monospace">{}</span>', row.name)
    if row.origin == "built-in":
        return text
    return format_html('{} <span class="badge bg-blue-lt">{}</span>', text, row.origin)


def _price(row: InstanceType) -> str:
    return "unknown" if row.price_usd_hour is None else format_usd(row.price_usd_hour)


def _source(row: InstanceType) -> str:
    day = format_day(row.price_date, "Y-m-d") if row.price_date else ""
    return ", ".join(filter(None, (day, row.price_source if day else "")))


COLUMNS: tuple[Column[InstanceType], ...] = (
    Column("Name", _name),
    Column("GPUs", lambda row: f"{row.gpus} × {row.gpu}" if row.gpus else "none"),
    Column(
        "GPU memory", lambda row: format_bytes(row.instance.gpu_bytes) if row.gpus else "", True
    ),
    Column("vCPUs", lambda row: row.vcpus, True),
    Column("Memory", lambda row: format_bytes(row.instance.memory_bytes), True),
    Column("Price (USD/h)", _price, True),
    Column("Price source", _source, wraps=True),
)


def _removal(row: InstanceType) -> tuple[str, str] | None:
    questions = {
        "changed": ("Reset", f"Reset {row.name} to its built-in values?"),
        "added": ("Remove", f"Remove {row.name}?"),
    }
    return questions.get(row.origin)


def _saved(actor: Any, row: InstanceType, before: InstanceType | None) -> None:
    price = row.price_usd_hour, row.price_date
    if before is None or (before.price_usd_hour, before.price_date) != price:
        since = row.price_date or _today()
        _store_price(actor, row.name, since, row.price_usd_hour, row.price_source)


def _deleted(actor: Any, row: InstanceType) -> None:
    again = BUILTIN.get(row.name)
    price = again.price_usd_hour if again else None
    _store_price(actor, row.name, _today(), price, "as built in")


def _today() -> date:
    return timezone.now().astimezone(UTC).date()


def _store_price(actor: Any, name: str, since: date, price: float | None, source: str) -> None:
    """Store the price from that day on, replacing later entries."""
    InstancePrice.objects.filter(name=name, since__gte=since).delete()
    InstancePrice.objects.create(
        name=name, since=since, price_usd_hour=price, source=source, changed_by=stored_actor(actor)
    )


INSTANCE_TYPES = Kind(
    fields=ModelFields(
        InstanceType,
        (
            *("vcpus", "memory_gib", "gpu", "gpus", "gpu_memory_gib"),
            *("price_usd_hour", "price_date", "price_source"),
        ),
        key="name",
    ),
    slug="instance-types",
    noun="instance type",
    shown=("origin", "changed_by"),
    columns=COLUMNS,
    all_rows=selectors.list_types,
    find=selectors.find,
    saved=_saved,
    deleted=_deleted,
    removal=_removal,
    intro="On-demand list prices of whole instances with date and source; they are not updated "
    "automatically. Enter the price you pay to correct costs and savings.",
    more="catalogue/prices.html",
)


class InstancePriceSerializer(serializers.ModelSerializer[InstancePrice]):
    changed_by = serializers.CharField(source="changed_by.username", default="")

    class Meta:
        model = InstancePrice
        fields = ("since", "price_usd_hour", "source", "changed_at", "changed_by")
        read_only_fields = fields


@extend_schema(tags=["instance types"], summary="List an instance type's prices over time")
class InstancePrices(ListAPIView[InstancePrice]):
    """Prices set for the instance type, latest first; each applies until the next."""

    serializer_class = InstancePriceSerializer

    def get_queryset(self) -> QuerySet[InstancePrice]:
        if getattr(self, "swagger_fake_view", False):
            return InstancePrice.objects.none()
        return INSTANCE_TYPES.get(self.kwargs["name"]).prices


def facts(_viewer: Any) -> Sequence[Fact]:
    rows = selectors.list_types()
    return (
        Fact("Instance types", str(len(rows))),
        Fact("With a price", str(sum(row.price_usd_hour is not None for row in rows))),
        Fact("Changed or added here", str(sum(row.origin != "built-in" for row in rows))),
    )


CARD = Card(
    *("prices", "Prices", "Basis of costs and savings.", 30, facts),
    *("catalogue:list", "Instance types"),
)


def page_urls() -> tuple[list[URLPattern], str]:
    return pages.make_urls(INSTANCE_TYPES), "catalogue"


def api_urls() -> tuple[list[URLPattern], str]:
    patterns = [
        *api.make_urls(
            INSTANCE_TYPES,
            origin=serializers.ChoiceField(choices=("built-in", "changed", "added")),
            changed_by=serializers.CharField(
                source="changed_by.username", default="", read_only=True
            ),
        ),
        path("instance-types/<str:name>/prices/", InstancePrices.as_view(), name="prices"),
    ]
    return patterns, "catalogue-api"
