"""/api/v1/endpoints/NAME/proof/: start the cache proof, or read the latest one."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from dashboards import actions, selectors
from dashboards.models import ProofRun
from endpoints import selectors as endpoint_selectors


class ProofSerializer(serializers.ModelSerializer[ProofRun]):
    endpoint = serializers.CharField(source="endpoint.name", read_only=True)

    class Meta:
        model = ProofRun
        fields = (
            "id",
            "endpoint",
            "generation",
            "state",
            "stage",
            "simulated",
            "proved",
            "shots",
            "verdicts",
            "message",
            "created_at",
            "finished_at",
        )
        read_only_fields = fields


@extend_schema(tags=["proof"])
class Proof(APIView):
    @extend_schema(responses=ProofSerializer)
    def get(self, _request: Request, name: str) -> Response:
        """The latest run; 404 when there was none."""
        actions.give_up_abandoned()
        run = selectors.latest_proof(endpoint_selectors.get(name))
        if run is None:
            raise Http404
        return Response(ProofSerializer(run).data)

    @extend_schema(request=None, responses={202: ProofSerializer})
    def post(self, request: Request, name: str) -> Response:
        """Start a run; 409 while one is live or the endpoint does not serve."""
        actor: Any = request.user
        run = actions.start_proof(actor, name)
        return Response(ProofSerializer(run).data, status=202)
