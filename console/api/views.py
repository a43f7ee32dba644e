"""`/me/`, the OpenAPI document at `/schema/` and Swagger UI at `/docs/`."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe
from drf_spectacular.utils import extend_schema, inline_serializer
from drf_spectacular.views import SpectacularAPIView
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.models import ApiToken
from console.accounts.permissions import get_effective_role
from console.api import schema
from console.core import openapi


class Root(APIView):
    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        names = {"me": "api:me", "schema": "api:schema", "docs": "api:docs"}
        links = {key: request.build_absolute_uri(reverse(name)) for key, name in names.items()}
        return Response({"name": "Emberline", "version": "v1", **links})


class Me(APIView):
    read_role = "member"

    @extend_schema(
        summary="Read the caller",
        tags=["me"],
        responses=inline_serializer(
            "Me",
            {
                "username": serializers.CharField(),
                "role": serializers.CharField(help_text="Permissions of this request."),
                "token": serializers.CharField(allow_null=True, help_text="Token name."),
            },
        ),
    )
    def get(self, request: Request) -> Response:
        token = request.auth if isinstance(request.auth, ApiToken) else None
        body = {
            "username": request.user.get_username(),
            # Anonymous requests were rejected; the type of `user` still allows them.
            "role": get_effective_role(request.user),  # type: ignore[arg-type]
            "token": token.name if token else None,
        }
        return Response(body)


class Schema(SpectacularAPIView):
    """Requires a login: the document names every field that can be set."""

    permission_classes = APIView.permission_classes
    authentication_classes = APIView.authentication_classes
    renderer_classes = list(schema.RENDERERS)

    def _get_schema_response(self, request: Request) -> Response:  # noqa: ARG002
        return Response(schema.build_document())


@require_safe
def redirect_docs(request: HttpRequest) -> HttpResponse:
    groups = openapi.group_operations(schema.build_document())
    context = {"groups": groups, "host": request.build_absolute_uri("/")[:-1]}
    return render(request, "console/api_docs.html", context)


@require_safe
def render_explorer(request: HttpRequest) -> HttpResponse:
    """Render Swagger UI from this host under its CSP, using the viewer's session."""
    return render(request, "console/api_explorer.html")
