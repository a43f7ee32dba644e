"""Read queries on cache tiers for pages, REST and other apps.

They return plain values; the number of queries does not grow with the number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import psutil
from django.conf import settings
from django.db.models import QuerySet
from django.http import Http404
from django.urls import reverse

from cachetier.models import CacheNode, CacheTier
from cachetier.node_admin import password_file
from cachetier.tier.advice import (
    CurveDrawing,
    WhatIf,
    compute_what_if,
    draw_curve,
    merge_namespaces,
)
from cachetier.tier.lifecycle import DEFAULT_TIER, TierPhase, TierReason
from cachetier.tier.node_stats import Namespace, NodeNumbers, NodeStats
from cachetier.tier.spec import SpareCapacity, TierSpec
from console.accounts import gate
from console.accounts.permissions import Somebody
from console.audit import selectors as trail
from console.clusters import selectors as clusters
from console.core import uses
from console.web.shell.search import MAX_HITS_PER_FINDER, Hit

# A local tier shares the machine's memory with workers.
_SHARE_OF_MEMORY = 0.75
_SHARE_OF_DISK = 0.8


def spare_capacity() -> SpareCapacity:
    var = settings.EMBERLINE.var
    var.mkdir(parents=True, exist_ok=True)
    return SpareCapacity(
        memory_bytes=int(psutil.virtual_memory().total * _SHARE_OF_MEMORY),
        disk_bytes=int(psutil.disk_usage(str(var)).free * _SHARE_OF_DISK),
        clusters=frozenset(clusters.names()),
    )


@dataclass(frozen=True, slots=True)
class Attachment:
    """Connection of a worker to a tier.

    `url` is "" until the tier is first ready, then kept while nodes change. `reason` and `message`
    explain why the tier is not ready.
    """

    url: str
    password_file: str
    ready: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class TierNumbers(NodeNumbers):
    """Statistics summed over a tier's nodes; None where no node reported the value."""

    seen_at: datetime | None = None

    @property
    def disk_percent(self) -> int | None:
        share = _share(self.disk_used_bytes, self.disk_capacity_bytes)
        return None if share is None else round(100 * share)

    @property
    def fill(self) -> float | None:
        return _share(self.used_bytes, self.capacity_bytes)

    @property
    def fill_percent(self) -> int | None:
        return None if self.fill is None else round(100 * self.fill)

    @property
    def hit_percent(self) -> int | None:
        if self.hits is None or not self.lookups:
            return None
        return round(100 * self.hits / self.lookups)


def _share(used: float | None, capacity: float | None) -> float | None:
    return None if used is None or not capacity else min(1.0, used / capacity)


@dataclass(frozen=True, slots=True)
class Summary:
    tier: CacheTier
    numbers: TierNumbers
    users: list[str]


@dataclass(frozen=True, slots=True)
class Detail:
    """Tier detail; `what_if` and `drawing` are None until enough lookups were sampled."""

    tier: CacheTier
    numbers: TierNumbers
    users: list[str]
    namespaces: list[Namespace]
    what_if: WhatIf | None
    drawing: CurveDrawing | None


@dataclass(frozen=True, slots=True)
class TargetNode:
    """Prometheus scrape target; `address` is HOST:PORT of the admin port."""

    tier: str
    name: str
    address: str
    cluster: str = ""


def attachment(tier_name: str = DEFAULT_TIER) -> Attachment:
    secret = str(password_file())
    tier = CacheTier.objects.select_related("status").filter(name=tier_name).first()
    if tier is None:
        text = f"Cache tier {tier_name} does not exist."
        return Attachment("", secret, ready=False, reason=TierReason.NO_TIER, message=text)
    if tier.deleted_at is not None:
        text = f"Cache tier {tier_name} is being deleted."
        return Attachment("", secret, ready=False, reason=TierReason.STOPPING_NODES, message=text)
    status = tier.status
    ready = status.phase == TierPhase.READY and status.observed_generation == tier.generation
    reason = "" if ready else status.reason or TierReason.ACCEPTED
    message = "" if ready else status.message or f"Cache tier {tier_name} is starting."
    return Attachment(status.url, secret, ready=ready, reason=str(reason), message=message)


def tiers() -> QuerySet[CacheTier]:
    return CacheTier.objects.select_related("status").prefetch_related("nodes")


def tier_names() -> list[str]:
    """Return the names an endpoint may use, with the default tier, which is made on demand."""
    names = CacheTier.objects.filter(deleted_at=None).values_list("name", flat=True)
    return sorted({DEFAULT_TIER, *names})


def tier_clusters() -> dict[str, str]:
    """Map each tier to its cluster ("" = this machine), including a default tier to be made."""
    rows = CacheTier.objects.filter(deleted_at=None).values_list("name", "cluster")
    return {DEFAULT_TIER: clusters.default_cluster(), **dict(rows)}


def tiers_by_cluster() -> dict[str, list[str]]:
    """Map each cluster to its tiers, including those being deleted."""
    tiers_by_cluster: dict[str, list[str]] = {}
    for name, cluster in CacheTier.objects.values_list("name", "cluster"):
        where = cluster or clusters.default_cluster()
        if where:
            tiers_by_cluster.setdefault(where, []).append(f"cache tier {name}")
    return tiers_by_cluster


def get_tier(name: str) -> CacheTier | None:
    return tiers().filter(name=name).first()


def get_tier_or_404(name: str) -> CacheTier:
    tier = get_tier(name)
    if tier is None:
        raise Http404
    return tier


def tier_generations() -> dict[str, int]:
    return dict(CacheTier.objects.filter(deleted_at=None).values_list("name", "generation"))


_CHANGED = ("cache-tier.update", "change")  # the latter by earlier versions


def list_specs(name: str, since: datetime) -> list[tuple[datetime, TierSpec]]:
    """Return the tier's spec at `since`, or at its later creation, and after each change since, the
    oldest first; none for an unknown tier. Read back from the changes in the audit log.
    """
    tier = CacheTier.objects.filter(name=name, deleted_at=None).first()
    if tier is None:
        return []
    begin, spec = max(since, tier.created_at), tier.spec
    names = {field.name for field in fields(TierSpec)}
    specs = []
    for event in trail.list_events().filter(
        verb__in=_CHANGED, target=f"cache-tier/{name}", at__gt=begin
    ):
        specs.append((event.at, spec))
        before = {field: pair[0] for field, pair in event.changes.items() if field in names}
        spec = replace(spec, **before)
    return [(begin, spec), *reversed(specs)]


def numbers(tier: CacheTier) -> TierNumbers:
    nodes = list(tier.nodes.all())
    times = [node.stats_at for node in nodes if node.stats_at is not None]
    return TierNumbers(
        **{field.name: _sum_known(nodes, field.name) for field in fields(NodeNumbers)},
        seen_at=min(times, default=None),
    )


def visible_users(viewer: Somebody) -> dict[str, list[str]]:
    """Map each tier to its users, limited to what the viewer may see."""
    tiers = uses.by_name("cache-tier")
    return {name: gate.filter_references(users, viewer) for name, users in tiers.items()}


def summaries(viewer: Somebody = None) -> list[Summary]:
    users = visible_users(viewer)
    return [Summary(tier, numbers(tier), users.get(tier.name, [])) for tier in tiers()]


def detail(tier: CacheTier, viewer: Somebody = None) -> Detail:
    stats = [NodeStats.of_json(node.stats) for node in tier.nodes.all() if node.stats]
    estimate = compute_what_if(
        [stat.curve for stat in stats if stat.curve is not None], tier.spec.total_memory_bytes
    )
    return Detail(
        tier,
        numbers(tier),
        visible_users(viewer).get(tier.name, []),
        merge_namespaces([stat.namespaces for stat in stats]),
        estimate,
        draw_curve(estimate) if estimate else None,
    )


def targets() -> Iterator[TargetNode]:
    """Yield every node with an address, ready or not, so that scrapes show nodes that are down."""
    rows = CacheNode.objects.exclude(admin_url="")
    for url, tier, name, cluster in rows.values_list(
        "admin_url", "tier__name", "name", "tier__cluster"
    ):
        yield TargetNode(tier, name, urlsplit(url).netloc, cluster)


def _sum_known(nodes: list[CacheNode], name: str) -> float | None:
    values = [node.stats[name] for node in nodes if name in node.stats]
    return sum(values) if values else None


def existing(names: Collection[str], _viewer: Any = None) -> Collection[str]:
    return set(CacheTier.objects.filter(name__in=names).values_list("name", flat=True))


def find_tiers(_viewer: Any, text: str) -> Sequence[Hit]:
    """Find tiers by name; every user with search access may see them."""
    rows = tiers().filter(name__icontains=text)[:MAX_HITS_PER_FINDER]
    return [
        Hit(
            "cache tier",
            row.name,
            reverse("cachetier:tier", args=[row.name]),
            "stack-2",
            str(row.shown_phase),
        )
        for row in rows
    ]
