"""Queries on cache tier prices."""

from __future__ import annotations

from django.db.models import OuterRef, Q, QuerySet, Subquery

from dashboards.costs.models import TierPrice


def tier_prices(name: str) -> QuerySet[TierPrice]:
    """Return the prices of a tier, latest first."""
    rows = TierPrice.objects.filter(name=name).select_related("changed_by")
    return rows.order_by("-since")


def last_tier_prices() -> QuerySet[TierPrice]:
    """Return the latest price of each tier, without cleared ones."""
    same = TierPrice.objects.filter(name=OuterRef("name")).order_by("-since")
    last = TierPrice.objects.filter(pk=Subquery(same.values("pk")[:1]))
    silent = Q(usd_hour=None, machine="", disk_usd_gib_month=None)
    return last.exclude(silent).order_by("name")


def last_tier_price(name: str) -> TierPrice | None:
    """Return None if no price was entered or the latest is cleared."""
    return last_tier_prices().filter(name=name).first()
