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
from dashboards.prometheus.sources.models import MetricsSource


class SourceSerializer(serializers.ModelSerializer[MetricsSource]):
    kept_secrets = serializers.SerializerMethodField(help_text="Names of the stored secrets.")
    found = serializers.DictField(help_text="Result of the last test.")

    class Meta:
        model = MetricsSource
        fields = (
            *("name", *actions.FIELDS.names, "kept_secrets", "verified_at", "found"),
            *("created_at", "changed_at"),
        )
        read_only_fields = fields

    def get_kept_secrets(self, source: MetricsSource) -> list[str]:
        return sorted(source.sealed)


class SourceChangeSerializer(serializers.ModelSerializer[MetricsSource]):
    """All fields are optional; omitted fields keep their values."""

    secret = serializers.CharField(
        required=False,
        write_only=True,
        allow_blank=True,
        help_text="Token, password or AWS secret key.",
    )
    key = serializers.CharField(
        required=False, write_only=True, allow_blank=True, help_text="PEM, unencrypted."
    )

    class Meta:
        model = MetricsSource
        fields = (*actions.FIELDS.names, *actions.SECRETS)
        extra_kwargs = {name: {"required": False} for name in actions.FIELDS.names}


class SourceAddSerializer(SourceChangeSerializer):
    class Meta:
        model = MetricsSource
        fields = ("name", *actions.FIELDS.names, *actions.SECRETS)


def _facts(source: MetricsSource) -> dict[str, Any]:
    sealed = {key: HIDDEN if source.sealed.get(key) else None for key in actions.SECRETS}
    return {**actions.FIELDS.values(source), **sealed}


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
    labels={
        **{name: (str(actions.FIELDS.of(name).verbose_name), "") for name in actions.FIELDS.names},
        **{name: (name.capitalize(), "") for name in actions.SECRETS},
    },
    secrets=actions.SECRETS,
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
