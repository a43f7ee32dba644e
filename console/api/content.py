"""Request body parsers and content negotiation.

Accepted bodies can be stored, logged and returned: they contain no lone surrogates, no numbers
outside JSON, limited nesting, and at most `body_limit` of the view (else LONGEST) bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from rest_framework import status
from rest_framework.exceptions import APIException, ParseError
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.parsers import JSONParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

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
            data = json.loads(text, parse_constant=_refuse_constant)
            json.dumps(data, ensure_ascii=False).encode()
        except RecursionError:
            raise ParseError("JSON parse error: nested too deep.") from None
        except UnicodeEncodeError:
            raise ParseError("JSON parse error: a string contains an unpaired surrogate.") from None
        except ValueError as error:
            raise ParseError(f"JSON parse error: {error}") from None
        return data


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


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number.")


class Negotiation(DefaultContentNegotiation):
    def select_renderer(
        self, request: Request, renderers: Iterable[BaseRenderer], format_suffix: str | None = None
    ) -> Any:
        if request.query_params.get("watch") == "true":
            first = next(iter(renderers))
            return first, first.media_type
        return super().select_renderer(request, renderers, format_suffix)
