"""OpenAPI schema generation: common errors, ETag and headers, derived from the view."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, cast

from django.conf import settings
from drf_spectacular.extensions import (
    OpenApiAuthenticationExtension,
    OpenApiFilterExtension,
    OpenApiSerializerExtension,
    OpenApiSerializerFieldExtension,
    OpenApiViewExtension,
)
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.renderers import OpenApiJsonRenderer, OpenApiJsonRenderer2, OpenApiYamlRenderer
from drf_spectacular.utils import OpenApiParameter

from console.api.serializers import ErrorSerializer

IDEMPOTENCY_KEY: Final = OpenApiParameter(
    "Idempotency-Key",
    str,
    "header",
    description="1 to 255 characters of your choice. The same request with the same key, within "
    "24 hours, creates nothing: the first response is returned.",
)
_IF_NONE_MATCH: Final = OpenApiParameter(
    "If-None-Match", str, "header", description="An ETag; 304 without a body if unchanged."
)
_ETAG: Final = OpenApiParameter(
    "ETag",
    str,
    "header",
    response=["200"],
    description="Version of the response; for If-None-Match, and for If-Match of a change.",
)
_EXTENSIONS: Final = (
    OpenApiAuthenticationExtension,
    OpenApiFilterExtension,
    OpenApiSerializerExtension,
    OpenApiSerializerFieldExtension,
    OpenApiViewExtension,
)
_BODY_METHODS = ("POST", "PUT", "PATCH")
_ERRORS = {
    "400": ("Malformed request or invalid value.", "required"),
    "401": ("Not logged in, or the token is not valid.", "not_authenticated"),
    "403": ("The role of the user or token does not permit this.", "permission_denied"),
    "404": ("Not found, or not visible to the caller.", "not_found"),
    "406": ("Only JSON is available.", "not_acceptable"),
    "409": ("The current state does not allow this action.", "conflict"),
    "412": ("The object has changed since the ETag in If-Match.", "stale"),
    "413": ("The body exceeds the size limit.", "too_large"),
    "415": ("Unsupported content type.", "unsupported_media_type"),
    "422": ("The Idempotency-Key was used for another request.", "idempotency_key_reused"),
    "503": ("A required component, such as a router or a cluster, does not respond.", "away"),
    "429": ("Too many requests, or too many open streams; see Retry-After.", "throttled"),
}


class _NoTarget:
    """Placeholder for a view callback that no extension describes."""

    cls = object


def load_extensions() -> None:
    """Import the targets of drf-spectacular's extensions at startup.

    It imports them lazily and without a lock: concurrent first requests fail with an
    AttributeError.
    """
    for extension in _EXTENSIONS:
        extension.get_match(_NoTarget)


class ConsoleAutoSchema(AutoSchema):
    def get_override_parameters(self) -> list[Any]:
        override_parameters = list(super().get_override_parameters())
        if self.method == "GET":
            override_parameters += [_IF_NONE_MATCH, _ETAG]
        if self._marked("idempotent"):
            override_parameters.append(IDEMPOTENCY_KEY)
        return override_parameters

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = dict(super()._get_response_bodies(direction))
        for code in self._errors(bodies):
            text, example = _ERRORS[code]
            body = bodies.get(code)
            answer = body or self._get_response_for_code(ErrorSerializer, code, None, direction)
            answer["description"] = answer.get("description") or text
            for content in answer.get("content", {}).values():
                content.setdefault("example", _example(example, text))
            bodies[code] = answer
        if self.method == "GET" and "200" in bodies:
            bodies.setdefault("304", {"description": "Not modified."})
        return dict(sorted(bodies.items()))

    def _errors(self, documented: dict[str, Any]) -> list[str]:
        codes = {"400", "401", "403", "406", "429"}
        if "{" in self.path:
            codes |= {"404", "503"}
        if self.method != "GET":
            codes.add("409")
        if self.method in _BODY_METHODS:
            codes |= {"413", "415"}
        if self._takes("If-Match"):
            codes.add("412")
        if self._marked("idempotent"):
            codes.add("422")
        return sorted(codes | (set(documented) & set(_ERRORS)))

    def _takes(self, header: str) -> bool:
        parameters = self.get_override_parameters()
        return any(getattr(parameter, "name", "") == header for parameter in parameters)

    def _marked(self, mark: str) -> bool:
        return bool(getattr(getattr(self.view, self.method.lower(), None), mark, False))


def _example(code: str, text: str) -> dict[str, Any]:
    first = {"code": code, "detail": text, "field": None, "value": None, "remedy": ""}
    return {**first, "errors": [], "request_id": "5f2c1d7e"}


def drop_null_alternatives(result: dict[str, Any], **_facts: Any) -> dict[str, Any]:
    """Drop redundant null alternatives (POSTPROCESSING_HOOK).

    A nullable JSONField yields "anything or null" as two schemas that both match null, so oneOf
    fails.
    """
    return cast(dict[str, Any], _drop_nulls(result))


def _drop_nulls(node: Any) -> Any:
    if isinstance(node, list):
        return [_drop_nulls(item) for item in node]
    if not isinstance(node, dict):
        return node
    node_items = {name: _drop_nulls(value) for name, value in node.items()}
    if node_items.get("oneOf") == [{}, {"type": "null"}]:
        del node_items["oneOf"]
    return node_items


class TokenScheme(OpenApiAuthenticationExtension):
    target_class = "console.api.access.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:  # noqa: ARG002
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A token from your profile page, as `Authorization: Bearer emb_...`.",
        }


class LocalScheme(OpenApiAuthenticationExtension):
    """Hide in-process authentication from the document."""

    target_class = "console.api.access.LocalAuthentication"
    name: list[str] = []

    def get_security_requirement(self, auto_schema: Any) -> list[Any]:  # noqa: ARG002
        return []

    def get_security_definition(self, auto_schema: Any) -> list[Any]:  # noqa: ARG002
        return []


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = "console.api.access.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, Any]:  # noqa: ARG002
        from django.conf import settings

        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}


def build_document() -> dict[str, Any]:
    return _build(str(settings.ROOT_URLCONF))


@lru_cache(maxsize=4)
def _build(_urls: str) -> dict[str, Any]:
    return SchemaGenerator().get_schema(request=None, public=True)


class YamlRenderer(OpenApiYamlRenderer):
    """Render the document once per process: it takes half a second."""

    def render(self, data: Any, *args: Any, **kwargs: Any) -> bytes:
        if data is build_document():
            return _render_yaml(str(settings.ROOT_URLCONF))
        return bytes(super().render(data, *args, **kwargs))


class PlainYamlRenderer(YamlRenderer):
    media_type = "application/yaml"


RENDERERS: Final = (YamlRenderer, PlainYamlRenderer, OpenApiJsonRenderer, OpenApiJsonRenderer2)


@lru_cache(maxsize=4)
def _render_yaml(urls: str) -> bytes:
    return bytes(OpenApiYamlRenderer().render(_build(urls)))
