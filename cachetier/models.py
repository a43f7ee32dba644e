"""Models: desired cache tiers, their observed status and nodes.

`actions` writes CacheTier; only `reconciler` writes CacheTierStatus and CacheNode.
"""

from __future__ import annotations

import uuid
from dataclasses import fields
from datetime import datetime

from django.conf import settings
from django.db import models
from django.utils import timezone

from cachetier.tier import balance
from cachetier.tier.lifecycle import TierPhase
from cachetier.tier.spec import GIB, POLICIES, TierSpec
from console.claims import Desired, Observed


class CacheTier(Desired):
    """Pool of cache nodes (L2) shared by workers of many endpoints. Sizes are per node."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=40, unique=True)
    memory_bytes = models.PositiveBigIntegerField(default=GIB)
    disk_bytes = models.PositiveBigIntegerField(default=0)
    node_count = models.PositiveIntegerField(default=1)
    copies = models.PositiveIntegerField(default=1)
    policy = models.CharField(max_length=16, default=POLICIES[0])
    cluster = models.CharField(max_length=40, default="", blank=True)
    namespace = models.CharField(max_length=63, default="", blank=True)
    storage_class = models.CharField(max_length=63, default="", blank=True)
    cpu_millis = models.PositiveIntegerField(default=250)
    cpu_limit_millis = models.PositiveIntegerField(default=0)
    memory_limit_bytes = models.PositiveBigIntegerField(default=0)
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    @property
    def spec(self) -> TierSpec:
        return TierSpec(**{field.name: getattr(self, field.name) for field in fields(TierSpec)})

    @property
    def imbalance(self) -> float | None:
        """Return the blocks of the fullest node over the mean. Prefetch `nodes`."""
        return balance.imbalance([node.blocks for node in self.nodes.all()])

    @property
    def rebalancing(self) -> balance.Rebalancing | None:
        """Return the change of nodes in progress. Prefetch `nodes`."""
        return balance.find_rebalancing(list(self.nodes.all()), self.node_count, timezone.now())

    @property
    def shown_phase(self) -> str:
        """Return Deleting as soon as deletion is requested, else the observed phase."""
        return TierPhase.DELETING if self.deleted_at is not None else self.status.phase


class CacheTierStatus(Observed):
    """Observed tier state; `url` is the workers' node list, kept while nodes restart."""

    tier = models.OneToOneField(
        CacheTier, primary_key=True, on_delete=models.CASCADE, related_name="status"
    )
    url = models.CharField(max_length=400, default="", blank=True)
    phase_since = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "cache tier statuses"

    def __str__(self) -> str:
        return f"{self.tier_id}: {self.phase}"


class CacheNode(models.Model):
    """Observed node process; `restarts` counts unplanned ones under the current spec."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tier = models.ForeignKey(CacheTier, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=80)
    index = models.PositiveIntegerField()
    state = models.CharField(max_length=16)
    url = models.CharField(max_length=200, default="", blank=True)
    admin_url = models.CharField(max_length=200, default="", blank=True)
    pid = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    restarts = models.PositiveIntegerField(default=0)
    last_restart_at = models.DateTimeField(null=True)
    message = models.TextField(default="", blank=True)
    stats = models.JSONField(default=dict, blank=True)
    stats_at = models.DateTimeField(null=True)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("index",)
        constraints = (
            models.UniqueConstraint(fields=("tier", "index"), name="one_cache_node_an_index"),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def blocks(self) -> float | None:
        return self.stats.get("blocks")

    @property
    def moved_in(self) -> float | None:
        return self.stats.get("moved_in")

    @property
    def share(self) -> float | None:
        """Return the node's share of the tier's blocks, None if unknown. Prefetch `nodes`."""
        return balance.share_of(self.blocks, [node.blocks for node in self.tier.nodes.all()])

    @property
    def share_percent(self) -> float | None:
        share = self.share
        return None if share is None else 100 * share

    @property
    def lost_at(self) -> datetime | None:
        """Return when the process restarted with empty memory, None for any other process."""
        return self.last_restart_at if self.last_restart_at == self.started_at else None
