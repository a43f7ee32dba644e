"""Request body parsers and content negotiation.

Bodies have at most `body_limit` of the view (else BODY_LIMIT) bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

from console.core import json_reader

BODY_LIMIT = 4 * 1024 * 1024
"""Bytes. The largest regular bodies are manifest lists and kubeconfigs with a CA."""


class TooLarge(APIException):
    status_code = status.HTTP_413_REQUEST_ENTITY_TOO_LARGE
    default_code = "too_large"

    def __init__(self, most: int) -> None:
        super().__init__(f"The body is too large; at most {most} bytes are accepted.")


class StrictJSONParser(JSONParser):
    def parse(
        self,
        stream: Any,
        media_type: str | None = None,  # noqa: ARG002
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        text = read_text(stream, parser_context)
        try:
            return json_reader.parse(text)
        except ValueError as error:
            raise ParseError(f"JSON parse error: {error}") from None


def read_text(stream: Any, parser_context: Mapping[str, Any] | None) -> str:
    """Return the body as text, reading at most the limit; raise ParseError or TooLarge."""
    view = (parser_context or {}).get("view")
    most = int(getattr(view, "body_limit", BODY_LIMIT))
    raw = stream.read(most + 1)
    if len(raw) > most:
        raise TooLarge(most)
    try:
        return str(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise ParseError("The body is not UTF-8.") from None


class Negotiation(DefaultContentNegotiation):
    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> Any:
        if request.query_params.get("watch") == "true":
            first = next(iter(renderers))
            return first, first.media_type
        return super().select_renderer(request, renderers, format_suffix)
