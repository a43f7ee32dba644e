"""/api/v1/metrics-sources/: list, add, change, test and remove metrics sources."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.permissions import require
from console.api.idempotency import idempotent
from console.api.parameters import DRY_RUN, IF_MATCH, Filter, is_dry_run
from console.api.preconditions import expected_generation, with_generation
from console.api.serializers import DryRunSerializer, dry_run_response, object_or_dry_run
from console.audit.record import HIDDEN
from console.core.errors import expect_object
from console.rehearsal import rehearsal
from dashboards.prometheus.sources import actions, selectors
from dashboards.prometheus.sources.models import AUTHS, MetricsSource
from dashboards.prometheus.sources.validation import FIELDS, SECRETS, TEXTS

_LABELS = {name: (name.replace("_", " ").capitalize(), "") for name in FIELDS}
_HELP = {
    "url": "Without /api/v1. Redirects are not followed.",
    "username": "User, or AWS' access key id.",
    "secret": "Token, password or AWS' secret key. Goes in and never comes out.",
    "secret_file": "Instead: a file's name in the console's folder of secrets.",
    "key": "PEM, without a password. Goes in and never comes out.",
    "key_file": "Instead: a file's name in the console's folder of secrets.",
    "certificate": "A client's, in PEM.",
    "ca": "PEM; empty: the authorities of the console's machine.",
    "tenant": "Sent in `tenant_header`.",
    "alertmanager_url": "Alerts and silences go through it then.",
}
_CLUSTER = "Whose endpoints' numbers it has; null: all whose cluster has no source."


class SourceSerializer(serializers.ModelSerializer[MetricsSource]):
    kept_secrets = serializers.SerializerMethodField(help_text="Names of those that are kept.")
    found = serializers.DictField(help_text="What it had when it was last tested.")

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
        name = serializers.CharField(help_text="1 to 40 small letters, digits and dashes.")
        return {"name": name, **fields}


@extend_schema(tags=["metrics sources"])
class Sources(GenericAPIView[MetricsSource]):
    serializer_class = SourceSerializer
    filters = (Filter("search", "name__icontains", "In the name."),)

    def get_queryset(self) -> QuerySet[MetricsSource]:
        return selectors.rows()

    @extend_schema(summary="List metrics sources", responses=SourceSerializer(many=True))
    def get(self, request: Request) -> Response:
        """List the metrics sources and the console's own. Needs a global role."""
        require(_user(request), "viewer")
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response(SourceSerializer(page, many=True).data)

    @extend_schema(
        summary="Add a metrics source",
        parameters=[DRY_RUN],
        request=SourceAddSerializer,
        responses={200: DryRunSerializer, 201: SourceSerializer},
        examples=[
            OpenApiExample(
                "A Prometheus behind a token",
                value={
                    "name": "central",
                    "url": "https://prometheus.example.com",
                    "auth": "bearer",
                    "secret_file": "central-token",
                },
                request_only=True,
            )
        ],
    )
    @idempotent
    def post(self, request: Request, *_args: Any, **_kwargs: Any) -> Response:
        """Needs the admin role. Charts query the source at once; test it to see which metrics it
        has.
        """
        data = dict(expect_object(request.data))
        name = data.pop("name", None)
        if is_dry_run(request):
            with rehearsal():
                made = actions.add(_user(request), name, data)
            return dry_run_response("create", made.name, {}, _facts(made), _LABELS)
        made = actions.add(_user(request), name, data)
        return _shown(made, 201)


@extend_schema(tags=["metrics sources"])
class SourceView(GenericAPIView[MetricsSource]):
    serializer_class = SourceSerializer

    @extend_schema(summary="Read a metrics source")
    def get(self, request: Request, name: str) -> Response:
        """Needs a global role."""
        require(_user(request), "viewer")
        return _shown(_found(name))

    @extend_schema(
        summary="Change a metrics source",
        parameters=[IF_MATCH, DRY_RUN],
        request=SourceChangeSerializer,
        responses=object_or_dry_run("MetricsSourceOrDryRun", SourceSerializer),
    )
    def patch(self, request: Request, name: str) -> Response:
        """Needs the admin role. With another address, stored secrets must be entered again."""
        data, expected = expect_object(request.data), expected_generation(request)
        if is_dry_run(request):
            before = _facts(_found(name))
            with rehearsal():
                done = actions.change(_user(request), name, data, expected_generation=expected)
            anew = {key: HIDDEN + ", given anew" for key in SECRETS if data.get(key)}
            return dry_run_response("update", name, before, {**_facts(done), **anew}, _LABELS)
        actions.change(_user(request), name, data, expected_generation=expected)
        return _shown(_found(name))

    @extend_schema(
        summary="Remove a metrics source",
        parameters=[IF_MATCH, DRY_RUN],
        responses={200: DryRunSerializer, 204: None},
    )
    def delete(self, request: Request, name: str) -> Response:
        """Needs the admin role. The source's endpoints fall back to the default source."""
        expected = expected_generation(request)
        if is_dry_run(request):
            with rehearsal():
                actions.remove(_user(request), name, expected_generation=expected)
            return dry_run_response("delete", name, {}, {}, _LABELS)
        actions.remove(_user(request), name, expected_generation=expected)
        return Response(status=204)


@extend_schema(tags=["metrics sources"])
class Test(GenericAPIView[MetricsSource]):
    serializer_class = SourceSerializer

    @extend_schema(summary="Test a metrics source", request=None)
    def post(self, request: Request, name: str) -> Response:
        """Examine the source for up to 10 s. Needs the operator role."""
        return _shown(actions.test(_user(request), name))


def _shown(source: MetricsSource, status: int = 200) -> Response:
    return with_generation(Response(SourceSerializer(source).data, status), source.generation)


def _facts(source: MetricsSource) -> dict[str, Any]:
    facts = {name: getattr(source, name) for name in (*TEXTS, "cluster", "enabled")}
    return {**facts, **{key: HIDDEN if source.sealed.get(key) else None for key in SECRETS}}


def _found(name: str) -> MetricsSource:
    source = selectors.get(name)
    if source is None:
        raise Http404
    return source


def _user(request: Request) -> Any:
    return request.user
