"""/api/v1/clusters/: capabilities and rights; add, change, check, remove."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiTypes, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.parameters import Filter, read_flag
from console.api.serializers import ErrorSerializer
from console.audit.record import HIDDEN
from console.clusters import actions, selectors
from console.clusters.api import serializers
from console.clusters.choices import ClusterPhase
from console.clusters.models import Cluster
from console.clusters.validation import ClusterAddSerializer, ClusterChangeSerializer
from console.core.errors import Problem, Refused
from console.provisioners.kubernetes.api.access import KINDS
from console.provisioners.kubernetes.discovery import rights
from console.resources.rest import Resource, named

_READABLE = ("kind", "context", "namespace", "reach")


def _facts(cluster: Cluster) -> dict[str, Any]:
    """Return the editable fields without the kubeconfig, which is write-only."""
    fields = {name: getattr(cluster, name) for name in _READABLE}
    return {**fields, "kubeconfig": HIDDEN if cluster.kubeconfig else None}


CLUSTERS = Resource(
    path="clusters",
    noun="cluster",
    tag="clusters",
    words=("Add", "Remove"),
    about={
        "create": "Requires the admin role. Capabilities are available once the phase is not "
        "Pending.",
        "change": "Requires the admin role. Workloads keep running.",
        "delete": "Requires the admin role. Rejected with 409 while endpoints or cache tiers use "
        "it.",
    },
    examples=serializers.NEW_CLUSTER,
    document=serializers.ClusterSerializer,
    new=ClusterAddSerializer,
    changed=ClusterChangeSerializer,
    rows=lambda _viewer: selectors.clusters(),
    context=lambda viewer: {"users": selectors.visible_users(viewer)},
    filters=(
        Filter("search", "name__icontains", "Part of the name."),
        Filter(
            "phase",
            "status__phase",
            "Filter by phase.",
            choices=[str(phase) for phase in ClusterPhase],
        ),
        Filter(
            "kind", "kind", "Filter by connection method.", choices=[str(kind) for kind in KINDS]
        ),
    ),
    create=named(actions.add_cluster),
    change=actions.change_cluster,
    delete=actions.remove_cluster,
    facts=_facts,
    labels={name: (name.capitalize(), "") for name in (*_READABLE, "kubeconfig")},
    secrets=("kubeconfig",),
    example_field="namespace",
    watched=True,
)


@extend_schema(tags=["clusters"])
class ClusterCheckView(APIView):
    @extend_schema(
        summary="Check a cluster now",
        request=None,
        parameters=[
            OpenApiParameter("wait", bool, description="Respond once the check has finished.")
        ],
        responses={200: serializers.ClusterSerializer, 202: serializers.ClusterSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """`seen_at` is the time of the last response. With `wait`, the response contains the result
        of a check that began after the request, after at most about a minute. While required
        rights are missing, the check repeats for five seconds, since a new Role takes effect
        with a delay.
        """
        cluster = CLUSTERS.get(request.user, name)
        wait = read_flag(request, "wait")
        actions.check_cluster(actor_of(request), cluster.name, wait=wait)
        return CLUSTERS.respond(request, name, 200 if wait else 202)


class RoleView(APIView):
    @extend_schema(
        tags=["clusters"],
        summary="Read a Role with the missing permissions",
        operation_id="clusters_role",
        parameters=[
            OpenApiParameter(
                "namespace", str, description="For this namespace, with all permissions."
            ),
            OpenApiParameter(
                "follow", bool, description="Include the permissions for following objects."
            ),
        ],
        responses={(200, "application/yaml"): OpenApiTypes.STR, 409: ErrorSerializer},
    )
    def get(self, request: Request, name: str) -> HttpResponse:
        """YAML for kubectl apply; 409 until the cluster was reached once."""
        row, namespace = CLUSTERS.get(request.user, name), request.query_params.get("namespace", "")
        if row.status.seen_at is None:
            text = f"{name} has not responded yet."
            remedy = f"Check it: emberline cluster check {name}."
            raise Refused(Problem("", None, text, remedy, "not_seen"), status_code=409)
        follow = read_flag(request, "follow")
        if follow or namespace:
            required = rights.required_rights(
                row.inventory, (rights.FOLLOW_GROUP,) if follow else ()
            )
            text = rights.manifest(required, row.granted.who, namespace or row.namespace)
        else:
            text = row.granted.manifest or f"# {name} grants all required permissions."
        return HttpResponse(text, content_type="application/yaml")
