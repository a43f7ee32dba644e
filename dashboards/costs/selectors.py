"""What was said of cache tiers' prices, as it is read."""

from __future__ import annotations

from django.db.models import OuterRef, Q, QuerySet, Subquery

from dashboards.costs.models import TierPrice


def tier_prices(name: str) -> QuerySet[TierPrice]:
    """What people said of it, the latest first."""
    rows = TierPrice.objects.filter(name=name).select_related("changed_by")
    return rows.order_by("-since")


def last_tier_prices() -> QuerySet[TierPrice]:
    """Of each tier what was said last, if that was not to forget it."""
    same = TierPrice.objects.filter(name=OuterRef("name")).order_by("-since")
    last = TierPrice.objects.filter(pk=Subquery(same.values("pk")[:1]))
    silent = Q(usd_hour=None, machine="", disk_usd_gib_month=None)
    return last.exclude(silent).order_by("name")


def last_tier_price(name: str) -> TierPrice | None:
    """None: nothing ever, or what was said is forgotten."""
    return last_tier_prices().filter(name=name).first()
