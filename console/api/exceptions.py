"""REST errors, always in one shape:

    {"code", "detail", "field", "value", "remedy", "errors": [...], "request_id"}

The first five repeat the first item of `errors`. An exception with an `errors` attribute (objects
with field, value, message, remedy, code) is a rejected specification. Other exceptions become a
500.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.core.exceptions import ValidationError as DjangoValidationError
from django.http import Http404
from rest_framework import exceptions, status
from rest_framework.response import Response
from rest_framework.views import set_rollback

from console.api.content import TooLarge
from console.core import request_log
from console.core.errors import STALE

_REQUEST = "non_field_errors"


def handle_error(error: Exception, context: dict[str, Any]) -> Response | None:
    """Build the error response (DRF hook); None lets Django log the traceback and answer 500."""
    standard = _standard_error(error)
    if standard is None:
        return None
    code, items, headers = standard
    if items[0]["code"] == STALE and "If-Match" in _headers_of(context):
        code = status.HTTP_412_PRECONDITION_FAILED
    set_rollback()
    first = items[0]
    body = {**first, "errors": items if _has_fields(items) else [], "request_id": _id(context)}
    return Response(body, status=code, headers=headers)


def _standard_error(error: Exception) -> tuple[int, list[dict[str, Any]], dict[str, str]] | None:
    listed = getattr(error, "errors", None)
    if isinstance(listed, (list, tuple)) and listed and hasattr(listed[0], "remedy"):
        code = getattr(error, "status_code", status.HTTP_400_BAD_REQUEST)
        return code, [_from_object(item) for item in listed], {}
    if isinstance(error, Http404):
        error = exceptions.NotFound()
    elif isinstance(error, PermissionDenied):
        error = exceptions.PermissionDenied(str(error) or None)
    elif isinstance(error, RequestDataTooBig):
        error = TooLarge(settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    elif isinstance(error, DjangoValidationError):
        error = exceptions.ValidationError(_django_detail(error))
    if not isinstance(error, exceptions.APIException):
        return None
    items = list(_flatten(error.get_full_details()))
    return error.status_code, items or [_item("error", str(error))], _headers(error)


def _item(
    code: str, detail: str, field: str | None = None, value: Any = None, remedy: str = ""
) -> dict[str, Any]:
    return {"code": code, "detail": detail, "field": field, "value": value, "remedy": remedy}


def _from_object(item: Any) -> dict[str, Any]:
    return _item(item.code, item.message, item.field or None, _as_json(item.value), item.remedy)


def _as_json(value: Any) -> Any:
    """Return the rejected value as JSON, or as text where JSON cannot represent it."""
    if value is None or isinstance(value, (str, int, bool)):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_as_json(item) for item in value]
    return str(value)


def _flatten(details: Any, path: str = "") -> Iterator[dict[str, Any]]:
    if isinstance(details, dict) and {"message", "code"} == set(details):
        yield _item(str(details["code"]), str(details["message"]), path or None)
    elif isinstance(details, dict):
        for key, value in details.items():
            name = path if key == _REQUEST else f"{path}.{key}" if path else str(key)
            yield from _flatten(value, name)
    elif isinstance(details, list):
        for index, value in enumerate(details):
            leaf = isinstance(value, dict) and {"message", "code"} == set(value)
            yield from _flatten(value, path if leaf else f"{path}[{index}]")


def _django_detail(error: DjangoValidationError) -> Any:
    return error.message_dict if hasattr(error, "error_dict") else error.messages


def _headers(error: exceptions.APIException) -> dict[str, str]:
    headers: dict[str, str] = {}
    # DRF's view sets both on the instance for some exception types only.
    scheme, wait = getattr(error, "auth_header", None), getattr(error, "wait", None)
    if scheme:
        headers["WWW-Authenticate"] = str(scheme)
    if wait:
        headers["Retry-After"] = str(math.ceil(wait))
    return headers


def _headers_of(context: dict[str, Any]) -> Mapping[str, str]:
    request = context.get("request")
    return {} if request is None else request.headers


def _has_fields(items: list[dict[str, Any]]) -> bool:
    return any(item["field"] for item in items)


def _id(context: dict[str, Any]) -> str:
    request = context.get("request")
    return getattr(request, "request_id", "") or request_log.current_id()
