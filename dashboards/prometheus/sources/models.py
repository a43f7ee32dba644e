"""Metrics sources: Prometheus servers beside the console's own."""

from __future__ import annotations

import uuid
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import (
    MaxLengthValidator,
    ProhibitNullCharactersValidator,
    RegexValidator,
)
from django.db import models
from django.utils import timezone

from console.clusters.selectors import names as cluster_names
from console.core.outbound import url_problem
from console.validators import plain_text
from dashboards.prometheus.http.login import TENANT_HEADER, Auth, Login, LoginError

OWN = "console"  # the console's own Prometheus: PROMETHEUS_URL, or started by `make up`
AUTHS = {
    Auth.NONE: "None",
    Auth.BEARER: "Bearer token",
    Auth.BASIC: "User name and password",
    Auth.SIGV4: "AWS SigV4 (Amazon Managed Service for Prometheus)",
    Auth.MTLS: "Client certificate",
}
FILE_NAME = r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}"
_FILE = "Alternative: name of a file in the console's secrets folder, read at each use."
_PEM: list[Any] = [MaxLengthValidator(64 * 1024), ProhibitNullCharactersValidator()]


def _matching(pattern: str) -> list[Any]:
    return [RegexValidator(rf"\A(?:{pattern})\Z", "Invalid value.", "invalid")]


def not_reserved(name: str) -> None:
    if name == OWN:
        raise ValidationError(f"{OWN} is the console's own source.", "invalid")


def reachable(url: str) -> None:
    if reason := url_problem(url):
        raise ValidationError(reason, "invalid")


class MetricsSource(models.Model):
    """Prometheus that the console queries. `cluster`: the cluster whose endpoints' metrics the
    source holds; null means all clusters without a source of their own. `sealed` maps field names
    to sealed secrets; `*_file` are names in the console's folder of secret files and take
    precedence. `found` is the result of the last examination, made at `verified_at`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(
        "Name",
        max_length=40,
        unique=True,
        error_messages={"unique": "Another metrics source has this name."},
        validators=[*_matching("[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?"), not_reserved],
        help_text="1 to 40 lower-case letters, digits and hyphens. Cannot be changed later.",
    )
    url = models.CharField(
        "URL",
        max_length=500,
        validators=[reachable],
        help_text="Such as https://prometheus.example.com, without /api/v1. Redirects are not "
        "followed.",
    )
    cluster = models.CharField(
        "Scope",
        max_length=40,
        null=True,
        blank=True,
        help_text="Cluster whose endpoints use it; empty: all endpoints whose cluster has no "
        "source.",
    )
    auth = models.CharField(
        "Authentication", max_length=8, default=Auth.NONE, choices=list(AUTHS.items())
    )
    username = models.CharField(
        "User name or AWS access key ID",
        max_length=200,
        default="",
        blank=True,
        validators=[plain_text],
    )
    sealed = models.JSONField(default=dict, blank=True)
    secret_file = models.CharField(
        "Secret file",
        max_length=100,
        default="",
        blank=True,
        validators=_matching(FILE_NAME),
        help_text=_FILE,
    )
    key_file = models.CharField(
        "Private key file",
        max_length=100,
        default="",
        blank=True,
        validators=_matching(FILE_NAME),
        help_text=_FILE,
    )
    certificate = models.TextField(
        "Client certificate", default="", blank=True, validators=_PEM, help_text="PEM, with chain."
    )
    ca = models.TextField(
        "CA certificate",
        default="",
        blank=True,
        validators=_PEM,
        help_text="Complete PEM. Empty: the system's CAs.",
    )
    tenant = models.CharField(
        "Tenant",
        max_length=200,
        default="",
        blank=True,
        validators=[plain_text],
        help_text="For Mimir, Cortex and Thanos.",
    )
    tenant_header = models.CharField(
        "Tenant header",
        max_length=60,
        default=TENANT_HEADER,
        validators=_matching("[A-Za-z0-9-]{1,60}"),
        help_text=f"Such as {TENANT_HEADER}.",
    )
    region = models.CharField(
        "AWS region",
        max_length=40,
        default="",
        blank=True,
        validators=_matching("[a-z0-9-]{1,40}"),
        help_text="Such as eu-central-1.",
    )
    service = models.CharField(
        "AWS service",
        max_length=40,
        default="aps",
        blank=True,
        validators=_matching("[a-z0-9-]{1,40}"),
        help_text="Such as aps.",
    )
    alertmanager_url = models.CharField(
        "Alertmanager",
        max_length=500,
        default="",
        blank=True,
        validators=[reachable],
        help_text="URL. Delivers alerts and silences instead of the console; same credentials.",
    )
    enabled = models.BooleanField("Enabled", default=True)
    generation = models.PositiveIntegerField(default=1)
    verified_at = models.DateTimeField(null=True)
    found: models.JSONField[Any, Any] = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    changed_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )

    class Meta:
        ordering = ("name",)
        constraints = (
            models.UniqueConstraint(
                fields=("cluster",), condition=models.Q(enabled=True), name="one_source_a_cluster"
            ),
            models.UniqueConstraint(
                fields=("enabled",),
                condition=models.Q(enabled=True, cluster__isnull=True),
                name="one_default_source",
            ),
        )

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        problems = {}
        if self.cluster is not None and self.cluster not in cluster_names():
            problems["cluster"] = f"Cluster {self.cluster} does not exist."
        try:
            Login(ca=self.ca).tls()
        except LoginError as error:
            problems["ca"] = str(error)
        if problems:
            raise ValidationError(problems)

    def purpose(self, field: str) -> str:
        return f"metrics-source/{self.pk}/{field}"
