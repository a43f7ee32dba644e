"""Pagination: each row once under concurrent changes, and rejected cursors."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from hypothesis import example, given
from hypothesis import strategies as st
from rest_framework.request import Request

from console.accounts.models import User
from console.api.pagination import CursorPages
from console.core.errors import Refused

NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
pytestmark = pytest.mark.django_db


class View:
    def __init__(self, *order: str) -> None:
        self.list_order = order


def get_list_page(rows: Any, view: Any, url: str) -> dict[str, Any]:
    pages = CursorPages()
    page = pages.paginate_queryset(rows, Request(RequestFactory().get(url)), view)
    return pages.get_paginated_response(page).data


def walk(rows: Any, view: Any, size: int, way: str = "next", url: str = "") -> list[Any]:
    url = url or f"/x/?page_size={size}&keep=me"
    found: list[Any] = []
    while url:
        page = get_list_page(rows, view, url)
        found += page["results"] if way == "next" else reversed(page["results"])
        url = page[way]
        assert not url or "keep=me" in url
    return found


@pytest.fixture
def people() -> list[User]:
    """Half of them joined at the same moment."""
    rows = [
        User(username=f"u{n:02}", date_joined=NOON + timedelta(microseconds=n // 2), role="viewer")
        for n in range(23)
    ]
    return User.objects.bulk_create(rows)


ORDERS = [("username",), ("-username",), ("date_joined",), ("-date_joined", "username"), ("role",)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("size", [1, 4, 22, 23, 24])
def test_forward_and_backward_pages_show_every_row_once(
    people: list[User], order: tuple[str, ...], size: int
) -> None:
    view = View(*order)
    wanted = list(User.objects.order_by(*order, "-pk" if order[-1].startswith("-") else "pk"))
    assert walk(User.objects.all(), view, size) == wanted
    last = f"/x/?page_size={size}&keep=me"
    while following := get_list_page(User.objects.all(), view, last)["next"]:
        last = following
    back = walk(User.objects.all(), view, size, "previous", last)
    assert back == wanted[::-1]


def test_first_page_has_no_previous_after_paging_back(people: list[User]) -> None:
    view = View("username")
    second = get_list_page(
        User.objects.all(), view, get_list_page(User.objects.all(), view, "/?page_size=5")["next"]
    )
    first = get_list_page(User.objects.all(), view, second["previous"])
    assert [user.username for user in first["results"]] == [f"u{n:02}" for n in range(5)]
    assert first["previous"] is None
    assert first["next"]


def test_added_and_removed_rows_do_not_shift_others(people: list[User]) -> None:
    view = View("username")
    page = get_list_page(User.objects.all(), view, "/?page_size=5")
    User.objects.filter(username__in=("u01", "u04")).delete()
    User.objects.create_user("u00a", password="x")
    rest = get_list_page(User.objects.all(), view, page["next"])
    assert [user.username for user in rest["results"]] == [f"u{n:02}" for n in range(5, 10)]


def test_query_order_applies_if_the_view_has_none(people: list[User]) -> None:
    rows = walk(User.objects.order_by("-username"), object(), 7)
    assert [user.username for user in rows] == [f"u{n:02}" for n in range(22, -1, -1)]


def test_plain_list_is_paged_by_offset() -> None:
    items = list(range(11))
    assert walk(items, object(), 4) == items
    assert get_list_page(items, object(), "/?page_size=11")["next"] is None


def bad(url: str, rows: Any = None) -> tuple[str, str]:
    with pytest.raises(Refused) as refused:
        get_list_page(User.objects.all() if rows is None else rows, View("date_joined"), url)
    problem = refused.value.errors[0]
    assert problem.remedy
    return problem.field, problem.code


@pytest.mark.parametrize("size", ["0", "-1", "501", "x", "1.5", "", "99999999999999999999", "٣"])
def test_invalid_size_is_rejected(size: str) -> None:
    assert bad(f"/?page_size={size}") == ("page_size", "invalid_page_size")


def cursor(*values: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode()


@pytest.mark.parametrize(
    "text",
    [
        "!!!",
        "x" * 5000,
        cursor(),
        cursor(0),
        cursor(7, "2026-01-01", 1),
        cursor(0, "yesterday", 1),
        cursor(0, None, None, None),
        cursor(0, {}, []),
        cursor(0, "2026-01-01", "one"),
        cursor(0, "2026-01-01", 1),
        base64.urlsafe_b64encode(b"[" * 100_000).decode(),
        base64.urlsafe_b64encode(b"[0, NaN, NaN]").decode(),
    ],
)
def test_forged_cursor_is_rejected(text: str) -> None:
    assert bad(f"/?cursor={text}") == ("cursor", "invalid_cursor")


@pytest.mark.parametrize("text", [cursor(0, -1), cursor(0, "1"), cursor(0, True), cursor(0, 1, 2)])
def test_plain_list_accepts_only_offsets(text: str) -> None:
    assert bad(f"/?cursor={text}", [1, 2, 3]) == ("cursor", "invalid_cursor")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@example([None])
@given(st.lists(JSON, max_size=3))
def test_no_cursor_breaks_the_query(values: list[Any]) -> None:
    for order in (("username",), ("date_joined",), ("is_active", "username")):
        text = base64.urlsafe_b64encode(json.dumps([0, *values]).encode()).decode()
        try:
            get_list_page(User.objects.all(), View(*order), f"/?cursor={text}")
        except Refused as refused:
            assert refused.errors[0].code == "invalid_cursor"
