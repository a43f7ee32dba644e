"""/api/v1/endpoints/NAME/drift|logs/: drift and container logs of an endpoint on a cluster."""

from __future__ import annotations

from drf_spectacular.utils import OpenApiTypes
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.permissions import require
from console.api.bodies import read_body
from console.api.parameters import whole_number
from console.provisioners.base import ProvisionError
from endpoints import drift_actions, selectors
from endpoints.api.answers import REFUSALS, endpoint_response, operation
from endpoints.api.serializers import (
    AdoptSerializer,
    DriftSerializer,
    EndpointSerializer,
    HealSerializer,
)
from endpoints.logs import sources
from endpoints.models import Endpoint
from endpoints.refusals import logs_away

_TAIL = whole_number("tail", 1, sources.MOST_LINES, sources.TAIL_LINES, "Lines per worker.")


class DriftView(GenericAPIView[Endpoint]):
    serializer_class = DriftSerializer

    @operation("List drift", DriftSerializer(many=True))
    def get(self, _request: Request, name: str) -> Response:
        """Drift per workload, as of the last observation."""
        page = self.paginate_queryset(selectors.get(name).status.drift)
        return self.get_paginated_response(page)


class Heal(GenericAPIView[Endpoint]):
    serializer_class = HealSerializer

    @operation("Revert drift", {202: EndpointSerializer}, *REFUSALS)
    def post(self, request: Request, name: str) -> Response:
        """Returns immediately; `drift` is empty once the fields are healed."""
        workload = read_body(HealSerializer, request.data)["workload"]
        drift_actions.heal(request.user, name, workload)
        return endpoint_response(name, status=202)


class Adopt(GenericAPIView[Endpoint]):
    serializer_class = AdoptSerializer

    @operation("Adopt a drifted field", {202: EndpointSerializer}, *REFUSALS)
    def post(self, request: Request, name: str) -> Response:
        """Adopts the value into the spec (a new revision) if the spec has such a field; otherwise
        releases the field.
        """
        key = read_body(AdoptSerializer, request.data)["key"]
        drift_actions.adopt(request.user, name, key)
        return endpoint_response(name, status=202)


class Logs(GenericAPIView[Endpoint]):
    @operation(
        "Read the latest log lines of all workers",
        {200: OpenApiTypes.OBJECT},
        404,
        503,
        parameters=[_TAIL],
    )
    def get(self, request: Request, name: str) -> Response:
        """Log tail per worker. Needs the operator role: logs may contain request data."""
        endpoint = selectors.get(name, request.user)
        require(request.user, "operator", of=endpoint)
        tail = int(request.query_params.get("tail", sources.TAIL_LINES))
        try:
            return Response(sources.log_tails(endpoint, tail))
        except ProvisionError as error:
            raise logs_away(error.reason, error.message) from error
