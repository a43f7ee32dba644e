"""/api/v1/clusters/NAME/role/: what somebody must grant there, for kubectl."""

from __future__ import annotations

from django.http import Http404, HttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiTypes, extend_schema
from rest_framework.request import Request
from rest_framework.views import APIView

from console.api.parameters import flag
from console.api.serializers import ErrorSerializer
from console.clusters import selectors
from console.core.errors import Problem, Refused
from console.provisioners.kubernetes.discovery import rights


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
        """YAML for kubectl apply; 409 while the cluster has not answered yet."""
        row, namespace = selectors.get(name), request.query_params.get("namespace", "")
        if row is None:
            raise Http404
        if row.status.seen_at is None:
            text = f"{name} has not answered yet."
            remedy = f"Ask it: emberline cluster check {name}."
            raise Refused(Problem("", None, text, remedy, "not_seen"), status_code=409)
        follow = flag(request, "follow")
        if follow or namespace:
            asked = rights.wanted(row.inventory, (rights.FOLLOW,) if follow else ())
            text = rights.manifest(asked, row.granted.who, namespace or row.namespace)
        else:
            text = row.granted.manifest or f"# {name} grants all that is needed."
        return HttpResponse(text, content_type="application/yaml")
