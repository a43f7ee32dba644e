"""POST /api/v1/preview/: what a spec would run. Nothing is created."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.serializers import ErrorSerializer
from endpoints import teams
from endpoints.api.serializers import SpecSerializer
from endpoints.api.spec_checks import nameless
from endpoints.placement.preview import preview
from endpoints.spec.rules import standing


class PreviewSerializer(serializers.Serializer[Any]):
    command = serializers.ListField(child=serializers.CharField(), help_text="Of each worker.")
    env = serializers.DictField(child=serializers.CharField(), help_text="Secrets are not shown.")
    image = serializers.CharField(help_text='"" on this machine.')
    objects = serializers.ListField(
        child=serializers.DictField(), help_text="The workers' Kubernetes objects, on a cluster."
    )
    refused = serializers.CharField(
        help_text="Why the cluster cannot carry it, or the caller may not have it."
    )
    notes = serializers.ListField(child=serializers.CharField())


class PreviewView(APIView):
    write_somewhere = True
    serializer_class = PreviewSerializer

    @extend_schema(
        tags=["endpoints"],
        summary="Show what a spec would run",
        request=SpecSerializer,
        responses={200: PreviewSerializer, 400: ErrorSerializer},
    )
    def post(self, request: Request) -> Response:
        """The workers' command line, environment, and on a cluster their objects."""
        teams.allow_somewhere(request.user)
        spec = nameless(request.data)
        found = preview(spec, standing(spec, teams.context_of(request.user, None)))
        return Response(
            {
                "command": list(found.argv),
                "env": dict(found.env),
                "image": found.image,
                "objects": list(found.objects),
                "refused": found.refused,
                "notes": list(found.notes),
            }
        )
