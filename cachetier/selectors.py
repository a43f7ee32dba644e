"""Every read of cache tiers that pages, REST and other rooms make.

Promises plain values, and a number of queries that does not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlsplit

from django.db.models import QuerySet

from cachetier.choices import DEFAULT_TIER, Phase, Reason
from cachetier.credentials import password_file
from cachetier.models import CacheNode, CacheTier


@dataclass(frozen=True, slots=True)
class Attachment:
    """How a worker reaches a tier. `url` is "" until the tier has first come up; it is kept while
    the tier restarts (workers then recompute). `reason` and `message` say why it is not ready."""

    url: str
    password_file: str
    ready: bool
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Numbers:
    """A tier's nodes summed up; None where no node has said it."""

    used_bytes: float | None
    capacity_bytes: float | None
    lookups: float | None
    hits: float | None
    evictions: float | None
    seen_at: datetime | None

    @property
    def fill(self) -> float | None:
        if self.used_bytes is None or not self.capacity_bytes:
            return None
        return min(1.0, self.used_bytes / self.capacity_bytes)

    @property
    def fill_percent(self) -> int | None:
        return None if self.fill is None else round(100 * self.fill)

    @property
    def hit_percent(self) -> int | None:
        if self.hits is None or not self.lookups:
            return None
        return round(100 * self.hits / self.lookups)


@dataclass(frozen=True, slots=True)
class TargetNode:
    """What Prometheus scrapes: `address` is HOST:PORT of the node's admin port."""

    tier: str
    name: str
    address: str


def attachment(tier_name: str = DEFAULT_TIER) -> Attachment:
    secret = str(password_file())
    tier = CacheTier.objects.select_related("status").filter(name=tier_name).first()
    if tier is None:
        text = f"There is no cache tier {tier_name}."
        return Attachment("", secret, ready=False, reason=Reason.NO_TIER, message=text)
    if tier.deleted_at is not None:
        text = f"Cache tier {tier_name} is being deleted."
        return Attachment("", secret, ready=False, reason=Reason.STOPPING_NODES, message=text)
    status = tier.status
    ready = status.phase == Phase.READY and status.observed_generation == tier.generation
    reason = "" if ready else status.reason or Reason.ACCEPTED
    message = "" if ready else status.message or f"Cache tier {tier_name} is starting."
    return Attachment(status.url, secret, ready=ready, reason=str(reason), message=message)


def tiers() -> QuerySet[CacheTier]:
    return CacheTier.objects.select_related("status").prefetch_related("nodes")


def get(name: str) -> CacheTier | None:
    return tiers().filter(name=name).first()


def numbers(tier: CacheTier) -> Numbers:
    nodes = list(tier.nodes.all())
    seen = [node.stats_at for node in nodes if node.stats_at is not None]
    return Numbers(
        used_bytes=_sum(nodes, "used_bytes"),
        capacity_bytes=_sum(nodes, "capacity_bytes"),
        lookups=_sum(nodes, "lookups"),
        hits=_sum(nodes, "hits"),
        evictions=_sum(nodes, "evictions"),
        seen_at=min(seen) if seen else None,
    )


def targets() -> Iterator[TargetNode]:
    """Every node that has an address, ready or not: a target that is down must be seen as down."""
    for node in CacheNode.objects.select_related("tier").exclude(admin_url=""):
        yield TargetNode(node.tier.name, node.name, urlsplit(node.admin_url).netloc)


def _sum(nodes: list[CacheNode], name: str) -> float | None:
    values = [node.stats[name] for node in nodes if name in node.stats]
    return sum(values) if values else None
