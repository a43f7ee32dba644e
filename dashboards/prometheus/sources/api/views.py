"""/api/v1/metrics-sources/: list, add, change, test and remove metrics sources."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.parameters import Filter
from console.audit.record import HIDDEN
from console.resources.rest import Resource, named
from dashboards.prometheus.sources import actions, selectors
from dashboards.prometheus.sources.models import AUTHS, MetricsSource
from dashboards.prometheus.sources.validation import FIELDS, SECRETS, TEXTS

_HELP = {
    "url": "Without /api/v1. Redirects are not followed.",
    "username": "User name, or AWS access key ID.",
    "secret": "Token, password or AWS secret key; write-only.",
    "secret_file": "Alternative: name of a file in the console's secrets folder.",
    "key": "PEM, unencrypted; write-only.",
    "key_file": "Alternative: name of a file in the console's secrets folder.",
    "certificate": "Client certificate, PEM.",
    "ca": "PEM; empty: the system's CAs.",
    "tenant": "Tenant ID, sent in `tenant_header`.",
    "alertmanager_url": "Delivers alerts and silences instead of the console.",
}
_CLUSTER = "Cluster whose endpoints use it; null: all endpoints whose cluster has no source."


class SourceSerializer(serializers.ModelSerializer[MetricsSource]):
    kept_secrets = serializers.SerializerMethodField(help_text="Names of the stored secrets.")
    found = serializers.DictField(help_text="Result of the last test.")

    class Meta:
        model = MetricsSource
        fields = (
            *("name", "cluster", *TEXTS, "enabled", "kept_secrets", "verified_at", "found"),
            *("created_at", "changed_at"),
        )
        read_only_fields = fields

    def get_kept_secrets(self, source: MetricsSource) -> list[str]:
        return sorted(source.sealed)


class SourceChangeSerializer(serializers.Serializer[Any]):
    """All fields are optional; omitted fields keep their values."""

    def get_fields(self) -> dict[str, Any]:
        texts: dict[str, Any] = {
            name: serializers.CharField(
                required=False,
                allow_blank=True,
                help_text=_HELP.get(name, ""),
                write_only=name in SECRETS,
            )
            for name in (*TEXTS, *SECRETS)
        }
        texts["auth"] = serializers.ChoiceField(required=False, choices=[str(a) for a in AUTHS])
        cluster = serializers.CharField(
            required=False, allow_null=True, allow_blank=True, help_text=_CLUSTER
        )
        return {**texts, "cluster": cluster, "enabled": serializers.BooleanField(required=False)}


class SourceAddSerializer(SourceChangeSerializer):
    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        fields["url"] = serializers.CharField(help_text=_HELP["url"])
        name = serializers.CharField(help_text="1 to 40 lower-case letters, digits and hyphens.")
        return {"name": name, **fields}


def _facts(source: MetricsSource) -> dict[str, Any]:
    fields = {name: getattr(source, name) for name in (*TEXTS, "cluster", "enabled")}
    return {**fields, **{key: HIDDEN if source.sealed.get(key) else None for key in SECRETS}}


SOURCES = Resource(
    path="metrics-sources",
    noun="metrics source",
    tag="metrics sources",
    words=("Add", "Remove"),
    about={
        "list": "List the metrics sources and the console's own. Needs a global role.",
        "read": "Needs a global role.",
        "create": "Needs the admin role. Charts query the source at once; test it to see which "
        "metrics it\nhas.",
        "change": "Needs the admin role. With another address, stored secrets must be entered "
        "again.",
        "delete": "Needs the admin role. The source's endpoints fall back to the default source.",
    },
    examples=[
        OpenApiExample(
            "Prometheus with a bearer token",
            value={
                "name": "central",
                "url": "https://prometheus.example.com",
                "auth": "bearer",
                "secret_file": "central-token",
            },
            request_only=True,
        )
    ],
    document=SourceSerializer,
    new=SourceAddSerializer,
    changed=SourceChangeSerializer,
    rows=lambda _viewer: selectors.rows(),
    filters=(Filter("search", "name__icontains", "Part of the name."),),
    create=named(actions.add),
    change=actions.change,
    delete=actions.remove,
    facts=_facts,
    labels={name: (name.replace("_", " ").capitalize(), "") for name in FIELDS},
    secrets=SECRETS,
    platform=True,
    view={"write_role": "admin"},
)


class Test(APIView):
    @extend_schema(
        tags=["metrics sources"],
        summary="Test a metrics source",
        request=None,
        responses=SourceSerializer,
    )
    def post(self, request: Request, name: str) -> Response:
        """Examine the source for up to 10 s. Needs the operator role."""
        return SOURCES.respond(request, actions.test(actor_of(request), name).name)
