"""Validate query parameters of all views against the OpenAPI document.

Unknown parameters and values of the wrong type are rejected. The view's schema is the only list.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from console.core.errors import Problem, Refused

if TYPE_CHECKING:
    from rest_framework.views import APIView

_LONGEST_SHOWN = 200
_DIGITS = 18


class ParameterValidator(BasePermission):
    """Validator as a permission: DRF runs permissions right after authentication."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        parameters = request.query_params
        if parameters:
            documented = documented_parameters(_class_of(view), str(request.method))
            problems = [
                _validate(name, parameters.getlist(name), documented) for name in parameters
            ]
            present = [problem for problem in problems if problem is not None]
            if present:
                raise Refused(*present)
        return True


@lru_cache(maxsize=1024)
def documented_parameters(view_class: Any, method: str) -> Mapping[str, dict[str, Any]]:
    method = "GET" if method == "HEAD" else method
    if not hasattr(view_class, method.lower()):
        return {}
    # DRF imports this module during its own import, and these import DRF.
    from drf_spectacular.generators import SchemaGenerator
    from drf_spectacular.plumbing import ComponentRegistry

    generator: Any = SchemaGenerator()
    schema: Any = generator.create_view(view_class.as_view(), method).schema
    schema.method, schema.path = method, ""
    schema.path_regex = schema.path_prefix = ""
    schema.registry = ComponentRegistry()
    inherited = [
        *schema._get_filter_parameters(),
        *schema._get_pagination_parameters(),
        *schema._get_format_parameters(),
    ]
    schemas = {entry["name"]: entry["schema"] for entry in inherited if entry["in"] == "query"}
    for (name, place), entry in schema._process_override_parameters().items():
        if place == "query" and entry is None:
            schemas.pop(name, None)
        elif place == "query":
            schemas[name] = entry["schema"]
    return schemas


def _class_of(view: Any) -> Any:
    return type(view)


def _validate(name: str, values: list[str], known: Mapping[str, dict[str, Any]]) -> Problem | None:
    schema = known.get(name)
    if schema is None:
        known_ones = (
            f"Known parameters: {', '.join(sorted(known))}."
            if known
            else "This request has no parameters."
        )
        message = "Unknown parameter."
        return Problem(name[:80], _shorten(values[-1]), message, known_ones, "unknown_parameter")
    if len(values) > 1 and schema.get("type") != "array":
        message = "The parameter is repeated."
        return Problem(name, values, message, "Send it once.", "repeated_parameter")
    for value in values:
        remedy = _expected_format(schema, value)
        if remedy:
            message = "Invalid parameter value."
            return Problem(name, _shorten(value), message, remedy, "invalid_parameter")
    return None


def _expected_format(schema: Mapping[str, Any], value: str) -> str:
    """Return the expected format; "" if the value matches the schema."""
    if "\0" in value:
        return "Remove NUL characters."
    kind = schema.get("type")
    if "enum" in schema:
        choices = [str(choice) for choice in schema["enum"]]
        return "" if value in choices else f"Choose one of {', '.join(choices)}."
    if kind == "boolean":
        return "" if value in ("true", "false") else "Send true or false."
    if kind == "array":
        return _expected_format(schema.get("items", {}), value)
    if kind in ("integer", "number"):
        return _expected_number(schema, value)
    return ""


def _expected_number(schema: Mapping[str, Any], value: str) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = "" if low is None else f" from {low}" + ("" if high is None else f" to {high}")
    whole = schema.get("type") == "integer"
    remedy = f"Send a {'whole ' if whole else ''}number{bounds}."
    digits = value.removeprefix("-")
    if whole and not (digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
        return remedy
    try:
        number = float(value)
    except ValueError:
        return remedy
    beyond = (low is not None and number < low) or (high is not None and number > high)
    return remedy if beyond or not math.isfinite(number) else ""


def _shorten(value: str) -> str:
    return value[:_LONGEST_SHOWN]
