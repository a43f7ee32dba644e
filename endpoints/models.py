"""Models: desired state of endpoints, observed status, history and keys.

`actions` writes Endpoint, Revision and InferenceKey; the reconciler alone writes EndpointStatus,
Replica and EndpointEvent, and deletes a DriftOrder.
"""

from __future__ import annotations

import uuid
from functools import cached_property
from typing import Any

from django.conf import settings
from django.db import models
from django.urls import reverse
from django.utils import timezone

from console.claims import Desired, Observed
from endpoints.choices import DriftVerb, Origin, Phase, Severity
from endpoints.keys import terms as keys_terms
from endpoints.keys.terms import KeyTerms
from endpoints.spec.endpoint_spec import EndpointSpec, parse

NAMESPACE = "default"


class Endpoint(Desired):
    """A named model service. The name stays taken until its deletion has finished."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=40, unique=True)
    # None: no team, for users with a global role.
    team = models.ForeignKey(
        "accounts.Team", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    spec = models.JSONField()
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("endpoints:detail", args=[self.name])

    @cached_property
    def parsed(self) -> EndpointSpec:
        return parse(self.spec)

    @property
    def deleting(self) -> bool:
        return self.deleted_at is not None

    @property
    def shown_phase(self) -> str:
        """Return the phase; Deleting from the deletion request on."""
        return Phase.DELETING if self.deleting else self.status.phase

    @property
    def current(self) -> bool:
        return bool(self.status.observed_generation == self.generation)


class EndpointStatus(Observed):
    """Observed state of an endpoint, written by the reconciler.

    `detail`: last log lines of failing workers. `parts`: states of components and L2.
    `served_generation`: last generation that served a request. `proven`: processes that served.
    `clock_generation` was first observed at `generation_seen_at`, the start of its deadline.

    On a cluster: `wanted_replicas` is the autoscaler's count (null: the spec's); `stood_replicas`
    the number of workers when all desired ones last served; `conditions` and `drift` are of the
    objects around the workers; `pods` those of components with readable logs; `rolled_back` the
    failed revision, its cause and the restored revision; `public_url` the external address;
    `applied` and `applied_at` identify the last apply.

    `start` is the last measured start of a worker: `model`, and `seconds` from the creation of the
    process or pod until it was ready.
    """

    endpoint = models.OneToOneField(
        Endpoint, primary_key=True, on_delete=models.CASCADE, related_name="status"
    )
    remedy = models.TextField(default="", blank=True)
    detail = models.TextField(default="", blank=True)
    url = models.CharField(max_length=200, default="", blank=True)
    admin_url = models.CharField(max_length=200, default="", blank=True)
    parts = models.JSONField(default=dict, blank=True)
    ready_replicas = models.PositiveIntegerField(default=0)
    worker_hash = models.CharField(max_length=16, default="", blank=True)
    served_generation = models.PositiveBigIntegerField(default=0)
    served_once = models.BooleanField(default=False)
    proven = models.CharField(max_length=64, default="", blank=True)
    clock_generation = models.PositiveBigIntegerField(default=0)
    generation_seen_at = models.DateTimeField(default=timezone.now)
    phase_since = models.DateTimeField(default=timezone.now)
    wanted_replicas = models.PositiveIntegerField(null=True, blank=True)
    stood_replicas = models.PositiveIntegerField(default=0)
    conditions = models.JSONField(default=list, blank=True)
    drift = models.JSONField(default=list, blank=True)
    pods = models.JSONField(default=list, blank=True)
    rolled_back = models.JSONField(default=dict, blank=True)
    public_url = models.CharField(max_length=300, default="", blank=True)
    applied = models.CharField(max_length=16, default="", blank=True)
    applied_at = models.DateTimeField(null=True, blank=True)
    start = models.JSONField(default=dict, blank=True)

    class Meta:
        verbose_name_plural = "endpoint statuses"

    def __str__(self) -> str:
        return f"{self.endpoint_id}: {self.phase}"

    @property
    def caller_url(self) -> str:
        """Return the address for callers; of an exposed endpoint the external one."""
        return self.public_url or self.url


class Replica(models.Model):
    """A worker as last observed. `restarts_ready`: restarts when it was last ready. `reason` and
    `stage`: startup progress and its obstacle, if reported. `start_s`: seconds until this process
    was first ready, None before.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="replicas")
    name = models.CharField(max_length=253)
    index = models.PositiveIntegerField()
    state = models.CharField(max_length=16)
    url = models.CharField(max_length=200, default="", blank=True)
    channels = models.JSONField(default=dict, blank=True)
    spec_hash = models.CharField(max_length=16, default="", blank=True)
    pid = models.PositiveIntegerField(default=0)
    started_at = models.DateTimeField(null=True)
    restarts = models.PositiveIntegerField(default=0)
    restarts_ready = models.PositiveIntegerField(default=0)
    draining_since = models.DateTimeField(null=True)
    simulated = models.BooleanField(default=False)
    message = models.TextField(default="", blank=True)
    reason = models.CharField(max_length=64, default="", blank=True)
    stage = models.CharField(max_length=20, default="", blank=True)
    node = models.CharField(max_length=253, default="", blank=True)
    created_at = models.DateTimeField(null=True)
    start_s = models.FloatField(null=True)
    containers = models.JSONField(default=list, blank=True)

    class Meta:
        ordering = ("index", "name")
        constraints = (
            models.UniqueConstraint(fields=("endpoint", "name"), name="one_replica_a_name"),
        )

    def __str__(self) -> str:
        return self.name


class Revision(models.Model):
    """An immutable spec, valid from one generation on. `note`: the author's comment."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveBigIntegerField()
    spec = models.JSONField()
    verb = models.CharField(max_length=20)
    note = models.CharField(max_length=500, default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    author = models.CharField(max_length=150, default="system")

    class Meta:
        ordering = ("-number",)
        constraints = (
            models.UniqueConstraint(fields=("endpoint", "number"), name="one_revision_a_number"),
        )

    def __str__(self) -> str:
        return f"revision {self.number}"


class EndpointEvent(models.Model):
    """An observed event. Repetitions of the latest one are counted, not added. `origin`: console or
    cluster.
    """

    id = models.BigAutoField(primary_key=True)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="events")
    kind = models.CharField(max_length=40)
    severity = models.CharField(max_length=10, default=Severity.NORMAL)
    subject = models.CharField(max_length=253, default="", blank=True)
    origin = models.CharField(max_length=10, default=Origin.CONSOLE)
    message = models.TextField()
    count = models.PositiveIntegerField(default=1)
    first_at = models.DateTimeField(default=timezone.now)
    last_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-last_at", "-id")
        indexes = (models.Index(fields=("endpoint", "-last_at"), name="event_latest"),)

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class DriftOrder(models.Model):
    """A decision on a drifted field (`key` as in `Drift`; "": the whole workload). Deleted once the
    reconciler has carried it out.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="drift_orders")
    verb = models.CharField(max_length=10, choices=[(v.value, v.value) for v in DriftVerb])
    workload = models.CharField(max_length=80)
    key = models.CharField(max_length=500, default="", blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("created_at",)

    def __str__(self) -> str:
        return f"{self.verb} {self.workload} {self.key}".strip()


class KeyGroup(models.Model):
    """Endpoints that share keys; keys are also valid for endpoints added later."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=60, unique=True)
    description = models.CharField(max_length=200, default="", blank=True)
    endpoints = models.ManyToManyField(Endpoint, related_name="key_groups")
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class InferenceKey(models.Model):
    """A key for one endpoint or for a group; only its hash is stored. `pin`: may choose the worker.
    `terms`: KeyTerms without `pin`. `old_sha256` stays valid until `old_until` during a rotation.
    `spent_until`: end of the period whose token budget is used up.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    endpoint = models.ForeignKey(
        Endpoint, null=True, blank=True, on_delete=models.CASCADE, related_name="keys"
    )
    group = models.ForeignKey(
        KeyGroup, null=True, blank=True, on_delete=models.CASCADE, related_name="keys"
    )
    name = models.CharField(max_length=60)
    sha256 = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=16)
    pin = models.BooleanField(default=False)
    terms = models.JSONField(default=dict, blank=True)
    old_sha256 = models.CharField(max_length=64, default="", blank=True)
    old_until = models.DateTimeField(null=True, blank=True)
    spent_until = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    revoked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("endpoint", "name"),
                condition=models.Q(revoked_at__isnull=True),
                name="one_living_key_a_name",
            ),
            models.UniqueConstraint(
                fields=("group", "name"),
                condition=models.Q(revoked_at__isnull=True),
                name="one_living_key_a_name_in_a_group",
            ),
            models.CheckConstraint(
                condition=models.Q(endpoint__isnull=True) ^ models.Q(group__isnull=True),
                name="key_of_an_endpoint_or_a_group",
            ),
        )

    def __str__(self) -> str:
        return self.name

    @property
    def allowed(self) -> KeyTerms:
        return keys_terms.terms_from_dict({**self.terms, "pin": self.pin})

    def facts(self) -> dict[str, Any]:
        return {"id": str(self.pk), "name": self.name, "prefix": self.prefix}


class KeyUsage(models.Model):
    """Usage of a key at an endpoint in one UTC hour, counted by routers. Names are stored, so that
    usage of deleted objects is kept.
    """

    id = models.BigAutoField(primary_key=True)
    endpoint_name = models.CharField(max_length=40)
    key_id = models.CharField(max_length=64)
    hour = models.DateTimeField()
    requests = models.PositiveBigIntegerField(default=0)
    errors = models.PositiveBigIntegerField(default=0)
    prompt_tokens = models.PositiveBigIntegerField(default=0)
    cached_tokens = models.PositiveBigIntegerField(default=0)
    completion_tokens = models.PositiveBigIntegerField(default=0)
    unreported = models.PositiveBigIntegerField(default=0)
    estimated_prompt_tokens = models.PositiveBigIntegerField(default=0)
    estimated_completion_tokens = models.PositiveBigIntegerField(default=0)

    class Meta:
        ordering = ("-hour",)
        constraints = (
            models.UniqueConstraint(
                fields=("endpoint_name", "key_id", "hour"), name="one_usage_an_hour"
            ),
        )
        indexes = (models.Index(fields=("key_id", "hour"), name="usage_of_a_key"),)

    def __str__(self) -> str:
        return f"{self.key_id} of {self.endpoint_name} at {self.hour:%Y-%m-%d %H}"


class UsageMark(models.Model):
    """Counters of one router process (`instance`) already added up; a new process starts at 0."""

    id = models.BigAutoField(primary_key=True)
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="usage_marks")
    instance = models.CharField(max_length=64)
    counted = models.JSONField(default=dict)
    seen_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("endpoint", "instance"), name="one_mark_a_router"),
        )

    def __str__(self) -> str:
        return f"{self.instance} of {self.endpoint_id}"
