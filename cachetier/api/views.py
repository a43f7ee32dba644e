"""REST views of /api/v1/cache-tiers/."""

from __future__ import annotations

from dataclasses import asdict

from django.db.models import Q
from drf_spectacular.utils import extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from cachetier import actions, selectors
from cachetier.api import serializers
from cachetier.models import CacheTier
from cachetier.tier.lifecycle import TierPhase
from cachetier.tier.spec import FIELDS
from console.accounts.permissions import actor_of
from console.api.bodies import read_body
from console.api.parameters import Filter
from console.api.serializers import ErrorSerializer
from console.resources.rest import Resource, named


def _filter_by_phase(value: str) -> Q:
    """Filter by shown phase: Deleting as soon as deletion is requested."""
    if value == TierPhase.DELETING:
        return Q(deleted_at__isnull=False)
    return Q(deleted_at__isnull=True, status__phase=value)


TIERS = Resource(
    path="cache-tiers",
    noun="cache tier",
    tag="cache",
    about={
        "create": "Create a tier; it serves once its phase is Ready.",
        "change": "Change a tier. Requests are served throughout; each field documents what "
        "restarts.",
        "delete": "Delete a tier; 409 while an endpoint uses it.",
    },
    examples=serializers.NEW_TIER,
    document=serializers.TierSerializer,
    new=serializers.CreateSerializer,
    changed=serializers.ChangeSerializer,
    rows=lambda _viewer: selectors.tiers(),
    context=lambda viewer: {"users": selectors.visible_users(viewer)},
    filters=(
        Filter("search", "name__icontains", "Part of the name."),
        Filter(
            "phase",
            _filter_by_phase,
            "Filter by phase.",
            choices=[str(phase) for phase in TierPhase],
        ),
        Filter("cluster", "cluster", "Filter by cluster."),
    ),
    create=named(actions.create),
    change=actions.change,
    delete=actions.delete,
    facts=lambda tier: asdict(tier.spec),
    labels={field.name: (field.label, str(field.effect)) for field in FIELDS},
    example_field="memory_bytes",
    watched=True,
    in_background=True,
)


@extend_schema(tags=["cache"])
class Contents(GenericAPIView[CacheTier]):
    serializer_class = serializers.ContentsSerializer

    @extend_schema(summary="List the contents of a cache tier")
    def get(self, request: Request, name: str) -> Response:
        """Contents by namespace, and hit rates at other sizes."""
        tier_detail = selectors.detail(TIERS.get(request.user, name), request.user)
        return Response(serializers.ContentsSerializer(tier_detail).data)


@extend_schema(tags=["cache"])
class Flush(GenericAPIView[CacheTier]):
    serializer_class = serializers.FlushSerializer

    @extend_schema(
        summary="Flush a namespace or the whole tier",
        request=serializers.FlushSerializer,
        responses={200: serializers.FlushedSerializer, 502: ErrorSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """Flush a namespace on every node; 502 names the nodes that did not respond."""
        tier = TIERS.get(request.user, name)
        body = read_body(serializers.FlushSerializer, request.data)
        return Response({"dropped": actions.flush(actor_of(request), tier.name, **body)})
