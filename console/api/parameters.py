"""Shared query parameters and headers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Q, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.filters import BaseFilterBackend
from rest_framework.request import Request

DRY_RUN: Final = OpenApiParameter(
    "dry_run",
    bool,
    description="Validate and return what would change, without changing anything.",
    default=False,
)
WATCH: Final = OpenApiParameter(
    "watch",
    bool,
    description="Return a stream of server-sent events (text/event-stream): an event `status` "
    "with the same JSON at once and after each change, `gone` "
    "when the object is deleted. To resume, send Last-Event-ID.",
    default=False,
)
LAST_EVENT_ID: Final = OpenApiParameter(
    "Last-Event-ID", str, "header", description="With `watch`: `id` of the last received event."
)
IF_MATCH: Final = OpenApiParameter(
    "If-Match",
    str,
    "header",
    description="ETag on which the change is based; 412 if the object has changed since.",
)


def whole_number(
    name: str, low: int, high: int, default: int, description: str
) -> OpenApiParameter:
    """Declare an integer parameter; `ParameterValidator` checks its bounds."""
    schema = {"type": "integer", "minimum": low, "maximum": high, "default": default}
    return OpenApiParameter(name, schema, description=description)


def read_flag(request: Request, name: str) -> bool:
    """Return a boolean parameter; `ParameterValidator` rejected invalid values."""
    return request.query_params.get(name, "false") == "true"


def is_dry_run(request: Request) -> bool:
    return read_flag(request, DRY_RUN.name)


@dataclass(frozen=True, slots=True)
class Filter:
    """Query filter; `lookup` is a Django lookup or builds a Q; several are combined with OR."""

    name: str
    lookup: str | tuple[str, ...] | Callable[[str], Q]
    help: str
    choices: Sequence[str] = ()
    kind: str = "string"  # or boolean, integer, date-time

    def narrow(self, queryset: QuerySet[Any], values: list[str]) -> QuerySet[Any]:
        condition = Q()
        for value in values:
            condition |= self._question(value)
        return queryset.filter(condition)

    def _question(self, value: str) -> Q:
        if callable(self.lookup):
            return self.lookup(value)
        lookups = (self.lookup,) if isinstance(self.lookup, str) else self.lookup
        condition = Q()
        for lookup in lookups:
            condition |= Q(**{lookup: value == "true" if self.kind == "boolean" else value})
        return condition

    def schema(self) -> dict[str, Any]:
        # These are single-valued.
        if self.kind == "boolean":
            return {"type": "boolean"}
        if self.kind == "date-time":
            return {"type": "string", "format": "date-time"}
        item: dict[str, Any] = {"type": self.kind}
        if self.choices:
            item["enum"] = list(self.choices)
        elif self.kind == "string":
            item["pattern"] = "^[^\\x00]*$"  # NUL cannot be stored in a text column
        return {"type": "array", "items": item}


class DeclaredFilters(BaseFilterBackend):
    """Apply the view's `filters` (DRF hook); values were validated by `ParameterValidator`."""

    def filter_queryset(self, request: Any, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        for declared in getattr(view, "filters", ()):
            values = request.query_params.getlist(declared.name)
            if values:
                queryset = declared.narrow(queryset, values)
        return queryset

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": declared.name,
                "in": "query",
                "required": False,
                "description": declared.help,
                "schema": declared.schema(),
            }
            for declared in getattr(view, "filters", ())
        ]
