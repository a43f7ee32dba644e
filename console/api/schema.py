"""How the OpenAPI document describes our bearer token and our error."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class TokenScheme(OpenApiAuthenticationExtension):
    target_class = "console.api.authentication.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:  # noqa: ARG002
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token from your profile page, as `Authorization: Bearer emb_...`.",
        }


class LocalScheme(OpenApiAuthenticationExtension):
    """Of this process alone: nothing a caller could use."""

    target_class = "console.api.authentication.LocalAuthentication"
    name: list[str] = []

    def get_security_requirement(self, auto_schema: Any) -> list[Any]:  # noqa: ARG002
        return []

    def get_security_definition(self, auto_schema: Any) -> list[Any]:  # noqa: ARG002
        return []


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = "console.api.authentication.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:  # noqa: ARG002
        from django.conf import settings

        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
