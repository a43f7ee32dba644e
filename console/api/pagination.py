"""Cursor pagination: `{next, previous, results}` with `?cursor=` and `?page_size=` (at most 500).

A cursor holds the order values and key of the last row instead of an offset, so that following
`next` returns each unchanged row exactly once despite concurrent inserts and deletes. Plain lists
(a catalogue, a router response) are short and use an index. Invalid cursors and sizes are rejected.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import F, Model, Q, QuerySet
from django.db.models.expressions import OrderBy
from django.utils.dateparse import parse_datetime
from rest_framework.pagination import BasePagination
from rest_framework.response import Response
from rest_framework.utils.urls import remove_query_param, replace_query_param

from console.core.errors import Problem, Refused

PAGE_SIZE = 50
MAX_PAGE_SIZE = 500
CURSOR, SIZE = "cursor", "page_size"
_MAX_CURSOR = 2000


@dataclass(frozen=True, slots=True)
class _Cursor:
    """Cursor: after (`back`: before) the row with these values; for a plain list, its index."""

    values: tuple[Any, ...]
    back: bool = False

    def encode(self) -> str:
        text = json.dumps([int(self.back), *self.values], cls=DjangoJSONEncoder)
        return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> _Cursor:
        try:
            raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            back, *values = json.loads(raw)
            json.dumps(values, ensure_ascii=False).encode()  # raises for lone surrogates
        except (ValueError, TypeError, binascii.Error, RecursionError):
            raise _bad_cursor(text) from None
        if back not in (0, 1) or len(text) > _MAX_CURSOR or "\\x00" in repr(values):
            raise _bad_cursor(text)
        return cls(tuple(values), bool(back))


@dataclass(frozen=True, slots=True)
class _OrderColumn:
    name: str
    down: bool


class CursorPages(BasePagination):
    """Paginator; a view's `list_order` overrides the query's order, and the row key is appended.

    Nullable columns cannot be ordered by.
    """

    def paginate_queryset(
        self, queryset: QuerySet[Any] | Sequence[Any], request: Any, view: Any | None = None
    ) -> list[Any]:
        self._url = request.build_absolute_uri()
        self._next = self._previous = ""
        size = _page_size(request.query_params.get(SIZE))
        text = request.query_params.get(CURSOR, "")
        place = _Cursor.decode(text) if text else None
        if isinstance(queryset, QuerySet):
            order = getattr(view, "list_order", ()) or _ordering(queryset)
            return self._rows(queryset, _keys(queryset.model, order), place, size, text)
        return self._items(queryset, place, size, text)

    def _rows(
        self,
        queryset: QuerySet[Any],
        keys: list[_OrderColumn],
        place: _Cursor | None,
        size: int,
        text: str,
    ) -> list[Any]:
        back = place is not None and place.back
        rows = queryset.order_by(*(_sort_rows(key, back) for key in keys))
        if place is not None:
            values = _convert_values(queryset.model, keys, place.values, text)
            rows = rows.filter(_rows_after(keys, values, back))
        page = list(rows[: size + 1])
        more, page = len(page) > size, page[:size]
        if back:
            page.reverse()
        ahead, behind = (place is not None, more) if back else (more, place is not None)
        if page and ahead:
            self._next = _Cursor(_values(page[-1], keys)).encode()
        if page and behind:
            self._previous = _Cursor(_values(page[0], keys), back=True).encode()
        return page

    def _items(
        self, items: Sequence[Any], place: _Cursor | None, size: int, text: str
    ) -> list[Any]:
        start = 0
        if place is not None:
            if len(place.values) != 1 or type(place.values[0]) is not int or place.values[0] < 0:
                raise _bad_cursor(text)
            start = place.values[0]
        if start + size < len(items):
            self._next = _Cursor((start + size,)).encode()
        if start > 0:
            self._previous = _Cursor((max(0, start - size),)).encode()
        return list(items[start : start + size])

    def get_paginated_response(self, data: Any) -> Response:
        return Response(
            {
                "next": self._link(self._next),
                "previous": self._link(self._previous),
                "results": data,
            }
        )

    def _link(self, cursor: str) -> str | None:
        if not cursor:
            return None
        return str(replace_query_param(remove_query_param(self._url, CURSOR), CURSOR, cursor))

    def get_paginated_response_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        link = {"type": ["string", "null"], "format": "uri"}
        return {
            "type": "object",
            "required": ["next", "previous", "results"],
            "properties": {
                "next": {**link, "description": "URL of the next page; null on the last."},
                "previous": {**link, "description": "URL of the previous page; null on the first."},
                "results": schema,
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:  # noqa: ARG002
        return [
            {
                "name": CURSOR,
                "in": "query",
                "required": False,
                "description": "From `next` or `previous` of another page; opaque.",
                "schema": {"type": "string"},
            },
            {
                "name": SIZE,
                "in": "query",
                "required": False,
                "description": f"Rows per page, at most {MAX_PAGE_SIZE}.",
                "schema": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_PAGE_SIZE,
                    "default": PAGE_SIZE,
                },
            },
        ]


def _page_size(text: str | None) -> int:
    if text is None:
        return PAGE_SIZE
    plain = text.isascii() and text.isdecimal() and len(text) < 6
    if not plain or not 1 <= int(text) <= MAX_PAGE_SIZE:
        remedy = f"Send a whole number from 1 to {MAX_PAGE_SIZE}."
        raise Refused(Problem(SIZE, text, "Invalid page size.", remedy, "invalid_page_size"))
    return int(text)


def _ordering(queryset: QuerySet[Any]) -> tuple[Any, ...]:
    return tuple(queryset.query.order_by) or tuple(queryset.model._meta.ordering or ())


def _keys(model: type[Model], order: Sequence[Any]) -> list[_OrderColumn]:
    columns = [
        _OrderColumn(str(name).removeprefix("-"), str(name).startswith("-")) for name in order
    ]
    unique = {"pk", "id", model._meta.pk.name if model._meta.pk else "pk"}
    last = columns[-1].down if columns else False
    if not any(key.name in unique for key in columns):
        columns.append(_OrderColumn("pk", last))
    return columns


def _sort_rows(key: _OrderColumn, back: bool) -> OrderBy:
    return F(key.name).desc() if key.down is not back else F(key.name).asc()


def _values(row: Any, keys: list[_OrderColumn]) -> tuple[Any, ...]:
    values = []
    for key in keys:
        value = row
        for part in key.name.split("__"):
            value = getattr(value, part)
        # Full precision: JSON truncates datetimes to milliseconds, which sort before their own row.
        values.append(value if isinstance(value, (int, float)) else _text(value))
    return tuple(values)


def _text(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _convert_values(
    model: type[Model], keys: list[_OrderColumn], values: tuple[Any, ...], text: str
) -> list[Any]:
    """Return the values in the columns' types; raise for a malformed cursor."""
    if len(values) != len(keys):
        raise _bad_cursor(text)
    try:
        return [
            _field(model, key.name).to_python(_check_value(value))
            for key, value in zip(keys, values, strict=True)
        ]
    except (ValidationError, ValueError, TypeError, OverflowError):
        raise _bad_cursor(text) from None


def _check_value(value: Any) -> Any:
    """Raise ValueError for null, which no column has, and for a datetime without a time zone."""
    if value is None:
        raise ValueError(value)
    moment = parse_datetime(value) if isinstance(value, str) else None
    if moment is not None and moment.tzinfo is None:
        raise ValueError(value)
    return value


def _field(model: type[Model], name: str) -> Any:
    *path, last = name.split("__")
    for part in path:
        # list orders only traverse relations
        related: Any = model._meta.get_field(part).related_model
        model = related
    return model._meta.pk if last == "pk" else model._meta.get_field(last)


def _rows_after(keys: list[_OrderColumn], values: list[Any], back: bool) -> Q:
    """Return the filter for rows after the cursor: a > A, or a = A and b > B, and so on."""
    condition = Q()
    same: dict[str, Any] = {}
    for key, value in zip(keys, values, strict=True):
        side = "lt" if key.down is not back else "gt"
        condition |= Q(**same, **{f"{key.name}__{side}": value})
        same[key.name] = value
    return condition


def _bad_cursor(text: str) -> Refused:
    remedy = "Use the value from `next` or `previous` of a page, or omit it for the first page."
    excerpt = text[:80]
    return Refused(Problem(CURSOR, excerpt, "Invalid cursor.", remedy, "invalid_cursor"))
