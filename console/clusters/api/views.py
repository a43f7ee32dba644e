"""/api/v1/clusters/: capabilities and rights; add, change, check, remove."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404, HttpResponse, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiTypes, extend_schema, extend_schema_view
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api import watch
from console.api.idempotency import idempotent
from console.api.parameters import (
    DRY_RUN,
    IF_MATCH,
    LAST_EVENT_ID,
    WATCH,
    Filter,
    is_dry_run,
    read_flag,
)
from console.api.preconditions import expected_generation, with_generation
from console.api.serializers import (
    DryRunSerializer,
    ErrorSerializer,
    dry_run_response,
    object_or_dry_run,
)
from console.api.watch import WatchedList
from console.audit.record import HIDDEN
from console.clusters import actions, selectors
from console.clusters.api import serializers
from console.clusters.choices import KINDS, ClusterPhase
from console.clusters.models import Cluster
from console.core.errors import Problem, Refused, expect_object
from console.provisioners.kubernetes.discovery import rights
from console.rehearsal import rehearsal


class RoleView(APIView):
    @extend_schema(
        tags=["clusters"],
        summary="The Role that grants what is missing",
        operation_id="clusters_role",
        parameters=[
            OpenApiParameter("namespace", str, description="For that one, and whole."),
            OpenApiParameter("follow", bool, description="With what following objects needs."),
        ],
        responses={
            (200, "application/yaml"): OpenApiTypes.STR,
            404: ErrorSerializer,
            409: ErrorSerializer,
        },
    )
    def get(self, request: Request, name: str) -> HttpResponse:
        """YAML for kubectl apply; 409 until the cluster was reached once."""
        row, namespace = selectors.get(name), request.query_params.get("namespace", "")
        if row is None:
            raise Http404
        if row.status.seen_at is None:
            text = f"{name} has not answered yet."
            remedy = f"Ask it: emberline cluster check {name}."
            raise Refused(Problem("", None, text, remedy, "not_seen"), status_code=409)
        follow = read_flag(request, "follow")
        if follow or namespace:
            asked = rights.required_rights(row.inventory, (rights.FOLLOW_GROUP,) if follow else ())
            text = rights.manifest(asked, row.granted.who, namespace or row.namespace)
        else:
            text = row.granted.manifest or f"# {name} grants all that is needed."
        return HttpResponse(text, content_type="application/yaml")


_LABELS = {
    "kind": ("Kind", ""),
    "context": ("Context", ""),
    "namespace": ("Namespace", ""),
    "reach": ("Reach", ""),
    "kubeconfig": ("Kubeconfig", ""),
}


@extend_schema(tags=["clusters"])
@extend_schema_view(get=extend_schema(summary="List clusters", parameters=[WATCH, LAST_EVENT_ID]))
class ClusterListView(WatchedList[Cluster]):
    serializer_class = serializers.ClusterSerializer
    filters = (
        Filter("search", "name__icontains", "In the name."),
        Filter(
            "phase", "status__phase", "In this phase.", choices=[str(one) for one in ClusterPhase]
        ),
        Filter("kind", "kind", "Reached this way.", choices=[str(one) for one in KINDS]),
    )

    def get_queryset(self) -> QuerySet[Cluster]:
        return selectors.clusters()

    def get_serializer_context(self) -> dict[str, Any]:
        return {
            **super().get_serializer_context(),
            "users": selectors.visible_users(self.request.user),
        }

    @extend_schema(
        summary="Add a cluster",
        parameters=[DRY_RUN],
        request=serializers.ClusterAddSerializer,
        responses={200: DryRunSerializer, 201: serializers.ClusterSerializer},
        examples=serializers.NEW_CLUSTER,
    )
    @idempotent
    def post(self, request: Request, *_args: Any, **_kwargs: Any) -> Response:
        """Requires the admin role. Capabilities are available once the phase is not Pending."""
        data = dict(expect_object(request.data))
        name = data.pop("name", None)
        if is_dry_run(request):
            with rehearsal():
                made = actions.add_cluster(actor_of(request), name, data)
            return dry_run_response("create", made.name, {}, _facts(made), _LABELS)
        made = actions.add_cluster(actor_of(request), name, data)
        return _shown(request, made.name, 201)


@extend_schema(tags=["clusters"])
class ClusterView(GenericAPIView[Cluster]):
    serializer_class = serializers.ClusterSerializer

    @extend_schema(summary="Read a cluster", parameters=[WATCH, LAST_EVENT_ID])
    def get(self, request: Request, name: str) -> Response | StreamingHttpResponse:
        if watch.is_watch(request):
            return watch.watch_object(request, lambda: _shown(request, name).data)
        return _shown(request, name)

    @extend_schema(
        summary="Change how a cluster is reached",
        parameters=[IF_MATCH, DRY_RUN],
        request=serializers.ClusterChangeSerializer,
        responses=object_or_dry_run("ClusterOrDryRun", serializers.ClusterSerializer),
    )
    def patch(self, request: Request, name: str) -> Response:
        """Requires the admin role. Workloads keep running."""
        data = expect_object(request.data)
        if not data:
            remedy = "Send at least one field to change, such as namespace."
            raise Refused(Problem("", None, "Nothing is to be changed.", remedy, "required"))
        before, expected = _facts(_found(name)), expected_generation(request)
        if is_dry_run(request):
            with rehearsal():
                done = actions.change_cluster(
                    actor_of(request), name, data, expected_generation=expected
                )
            given = {"kubeconfig": HIDDEN + ", given anew"} if "kubeconfig" in data else {}
            return dry_run_response("update", name, before, {**_facts(done), **given}, _LABELS)
        actions.change_cluster(actor_of(request), name, data, expected_generation=expected)
        return _shown(request, name)

    @extend_schema(
        summary="Remove a cluster",
        parameters=[IF_MATCH, DRY_RUN],
        responses={200: DryRunSerializer, 204: None, 409: ErrorSerializer},
    )
    def delete(self, request: Request, name: str) -> Response:
        """Requires the admin role. Rejected with 409 while anything is placed there."""
        _found(name)
        expected = expected_generation(request)
        if is_dry_run(request):
            with rehearsal():
                actions.remove_cluster(actor_of(request), name, expected_generation=expected)
            return dry_run_response("delete", name, {}, {}, _LABELS)
        actions.remove_cluster(actor_of(request), name, expected_generation=expected)
        return Response(status=204)


@extend_schema(tags=["clusters"])
class ClusterCheckView(GenericAPIView[Cluster]):
    serializer_class = serializers.ClusterSerializer

    @extend_schema(
        summary="Ask a cluster again now",
        request=None,
        parameters=[OpenApiParameter("wait", bool, description="Answer when it has been asked.")],
        responses={200: serializers.ClusterSerializer, 202: serializers.ClusterSerializer},
    )
    def post(self, request: Request, name: str) -> Response:
        """`seen_at` is the time of the last response. With `wait`, the response contains the result
        of a check that began after the request, after at most about a minute. While required
        rights are missing, the check repeats for five seconds, since a new Role takes effect
        with a delay.
        """
        cluster = _found(name)
        wait = read_flag(request, "wait")
        actions.check_cluster(actor_of(request), cluster.name, wait=wait)
        return _shown(request, name, 200 if wait else 202)


def _found(name: str) -> Cluster:
    cluster = selectors.get(name)
    if cluster is None:
        raise Http404
    return cluster


def _shown(request: Request, name: str, status: int = 200) -> Response:
    cluster = _found(name)
    seen = serializers.ClusterSerializer(cluster, context={"request": request})
    return with_generation(Response(seen.data, status=status), cluster.generation)


def _facts(cluster: Cluster) -> dict[str, Any]:
    """Return the editable fields without the kubeconfig, which is write-only."""
    facts = {name: getattr(cluster, name) for name in _LABELS if name != "kubeconfig"}
    return {**facts, "kubeconfig": HIDDEN if cluster.kubeconfig else None}
