"""REST views of /api/v1/cache-tiers/."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.db.models import Q, QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from cachetier import actions, selectors
from cachetier.api import serializers
from cachetier.models import CacheTier
from cachetier.selectors import get_tier_or_404
from cachetier.tier.lifecycle import TierPhase
from cachetier.tier.spec import FIELDS, Problem, Refused
from console.api import watch
from console.api.idempotency import idempotent
from console.api.parameters import DRY_RUN, IF_MATCH, LAST_EVENT_ID, WATCH, Filter, is_dry_run
from console.api.preconditions import expected_generation, with_generation
from console.api.serializers import (
    DryRunSerializer,
    ErrorSerializer,
    dry_run_response,
    object_or_dry_run,
)
from console.api.watch import WatchedList
from console.core.errors import expect_object
from console.rehearsal import rehearsal

_LABELS = {one.name: (one.label, str(one.effect)) for one in FIELDS}


def _filter_by_phase(value: str) -> Q:
    """Filter by shown phase: Deleting as soon as deletion is requested."""
    if value == TierPhase.DELETING:
        return Q(deleted_at__isnull=False)
    return Q(deleted_at__isnull=True, status__phase=value)


@extend_schema(tags=["cache"])
@extend_schema_view(
    get=extend_schema(summary="List cache tiers", parameters=[WATCH, LAST_EVENT_ID])
)
class Tiers(WatchedList[CacheTier]):
    serializer_class = serializers.TierSerializer
    filters = (
        Filter("search", "name__icontains", "In the name."),
        Filter(
            "phase", _filter_by_phase, "In this phase.", choices=[str(one) for one in TierPhase]
        ),
        Filter("cluster", "cluster", "On this cluster."),
    )

    def get_queryset(self) -> QuerySet[CacheTier]:
        return selectors.tiers()

    def get_serializer_context(self) -> dict[str, Any]:
        return {
            **super().get_serializer_context(),
            "users": selectors.visible_users(self.request.user),
        }

    @extend_schema(
        summary="Create a cache tier",
        parameters=[DRY_RUN],
        request=serializers.CreateSerializer,
        responses={200: DryRunSerializer, 201: serializers.TierSerializer},
        examples=serializers.NEW_TIER,
    )
    @idempotent
    def post(self, request: Request, *_args: Any, **_kwargs: Any) -> Response:
        """Create a tier; it serves once its phase is Ready."""
        data = dict(expect_object(request.data))
        name = data.pop("name", None)
        if is_dry_run(request):
            with rehearsal():
                made = actions.create(_user(request), name, data)
            return dry_run_response("create", made.name, {}, asdict(made.spec), _LABELS)
        made = actions.create(_user(request), name, data)
        return _tier_response(request, made.name, status=201)


@extend_schema(tags=["cache"])
class Tier(GenericAPIView[CacheTier]):
    serializer_class = serializers.TierSerializer

    @extend_schema(summary="Read a cache tier", parameters=[WATCH, LAST_EVENT_ID])
    def get(self, request: Request, name: str) -> Response | StreamingHttpResponse:
        if watch.is_watch(request):
            return watch.watch_object(request, lambda: _tier_response(request, name).data)
        return _tier_response(request, name)

    @extend_schema(
        summary="Change a cache tier",
        parameters=[IF_MATCH, DRY_RUN],
        request=serializers.ChangeSerializer,
        responses=object_or_dry_run("CacheTierOrDryRun", serializers.TierSerializer),
    )
    def patch(self, request: Request, name: str) -> Response:
        """Change a tier. Requests are served throughout; each field documents what restarts."""
        data = expect_object(request.data)
        if not data:
            remedy = "Send at least one field to change, such as memory_bytes."
            raise Refused(Problem("", None, "Nothing is to be changed.", remedy, "required"))
        tier, expected = get_tier_or_404(name), expected_generation(request)
        if is_dry_run(request):
            with rehearsal():
                done = actions.change(_user(request), name, data, expected_generation=expected)
            return dry_run_response("update", name, asdict(tier.spec), asdict(done.spec), _LABELS)
        actions.change(_user(request), name, data, expected_generation=expected)
        return _tier_response(request, name)

    @extend_schema(
        summary="Delete a cache tier",
        parameters=[IF_MATCH, DRY_RUN],
        responses={200: DryRunSerializer, 202: serializers.TierSerializer, 409: ErrorSerializer},
    )
    def delete(self, request: Request, name: str) -> Response:
        """Delete a tier; 409 while an endpoint uses it."""
        get_tier_or_404(name)
        expected = expected_generation(request)
        if is_dry_run(request):
            with rehearsal():
                actions.delete(_user(request), name, expected_generation=expected)
            return dry_run_response("delete", name, {}, {}, _LABELS)
        actions.delete(_user(request), name, expected_generation=expected)
        return _tier_response(request, name, status=202)


@extend_schema(tags=["cache"])
class Contents(GenericAPIView[CacheTier]):
    serializer_class = serializers.ContentsSerializer

    @extend_schema(summary="What a cache tier holds")
    def get(self, request: Request, name: str) -> Response:
        """Contents by namespace, and hit rates at other sizes."""
        found = selectors.detail(get_tier_or_404(name), request.user)
        return Response(serializers.ContentsSerializer(found).data)


@extend_schema(tags=["cache"])
class Flush(GenericAPIView[CacheTier]):
    serializer_class = serializers.FlushSerializer

    @extend_schema(
        summary="Forget a namespace, or everything",
        request=serializers.FlushSerializer,
        responses={200: serializers.FlushedSerializer, 502: ErrorSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Flush a namespace on every node; 502 names the nodes that did not respond."""
        data = expect_object(request.data)
        if "namespace" not in data:
            remedy = 'Send {"namespace": "..."}; "" forgets everything.'
            raise Refused(Problem("namespace", None, "It is missing.", remedy, "required"))
        dropped = actions.flush(_user(request), get_tier_or_404(name).name, data["namespace"])
        return Response({"dropped": dropped})


def _tier_response(request: Request, name: str, status: int = 200) -> Response:
    seen = serializers.TierSerializer(get_tier_or_404(name), context={"request": request})
    return with_generation(Response(seen.data, status=status), seen.data["generation"])


def _user(request: Request) -> Any:
    return request.user
