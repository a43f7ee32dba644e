"""Models: followed namespaces, their observed status, and object ownership of endpoints.

`actions` writes Follow; `reconciler` alone writes FollowStatus and Owned.
"""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.utils import timezone

from console.claims import Desired, Observed


class Follow(Desired):
    """A followed namespace. `foreign`: allow a definition installed by another operator, which may
    also act on these objects.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    cluster = models.CharField(max_length=40)
    namespace = models.CharField(max_length=63)
    foreign = models.BooleanField(default=False)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("cluster", "namespace")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "namespace"), name="one_follow_of_a_namespace"
            ),
        )

    def __str__(self) -> str:
        return f"{self.cluster}/{self.namespace}"


class FollowStatus(Observed):
    """Observed state of following a cluster's objects. `seen_at`: last successful listing of the
    objects.
    """

    follow = models.OneToOneField(
        Follow, primary_key=True, on_delete=models.CASCADE, related_name="status"
    )
    seen_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "follow statuses"

    def __str__(self) -> str:
        return f"{self.follow_id}: {self.phase}"


class Owned(models.Model):
    """An object and its endpoint, which may not exist yet.

    `fingerprint` is the hash of the object last evaluated, `generation` the object's generation
    last applied, `wanted` the endpoint's generation after that, `refused` the reason for a
    rejection, `judged_at` the time of the last evaluation, `notes` what the last accepted object
    says without effect.
    """

    uid = models.CharField(primary_key=True, max_length=64)
    follow = models.ForeignKey(Follow, on_delete=models.CASCADE, related_name="owned")
    name = models.CharField(max_length=253)
    endpoint = models.CharField(max_length=40, unique=True, null=True)
    fingerprint = models.CharField(max_length=64, default="", blank=True)
    generation = models.PositiveBigIntegerField(default=0)
    wanted = models.PositiveBigIntegerField(default=0)
    refused = models.TextField(default="", blank=True)
    refused_reason = models.CharField(max_length=64, default="", blank=True)
    judged_at = models.DateTimeField(null=True)
    notes = models.TextField(default="", blank=True)

    class Meta:
        ordering = ("name",)
        verbose_name_plural = "owned"

    def __str__(self) -> str:
        return self.name
