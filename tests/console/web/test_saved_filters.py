"""Saved filters of the lists: by user, from the page's own address."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from console.web import saved_filters
from console.web.models import Preference
from tests.support.console import browser

pytestmark = pytest.mark.django_db

LIST = "/endpoints/"


def save(client: Client, page: str, **fields: str) -> Any:
    return client.post("/saved-filters/", fields, headers={"Referer": f"http://testserver{page}"})


def test_filter_is_saved_applied_and_deleted() -> None:
    client = browser("viewer")
    page = f"{LIST}?page=2&phase=Failed&q=&range=6h"
    response = save(client, page, name="Broken")
    assert response.headers["Location"] == page
    text = client.get(LIST).text
    assert f'href="{LIST}?phase=Failed"' in text and "Broken" in text
    assert 'aria-current="true">Broken' in client.get(f"{LIST}?phase=Failed").text
    assert "Broken" not in browser("operator").get(LIST).text
    assert "Broken" not in client.get("/audit/").text, "another list has its own"
    save(client, LIST, delete="Broken")
    assert not Preference.objects.exists()


@pytest.mark.parametrize(
    ("page", "name", "message"),
    [
        (LIST, "Empty", "The list has no filter."),
        (f"{LIST}?page=3", "Empty", "The list has no filter."),
        (f"{LIST}?q=a", " ", "name: enter 1 to 40 characters."),
        (f"{LIST}?q=a", "x" * 41, "name: enter 1 to 40 characters."),
        (f"{LIST}?q={'a' * 2000}", "Long", "The list has no filter."),
        ("/no-such-page/?q=a", "Lost", "did not send the page"),
    ],
)
def test_what_cannot_be_saved_is_reported(page: str, name: str, message: str) -> None:
    client = browser("viewer")
    save(client, page, name=name)
    assert message in client.get(LIST).text
    assert not Preference.objects.exists()


def test_number_is_bounded_and_a_name_can_be_used_again() -> None:
    client = browser("viewer")
    for number in range(saved_filters.MAX_FILTERS):
        save(client, f"{LIST}?q={number}", name=f"f{number}")
    save(client, f"{LIST}?q=more", name="more")
    assert "20 filters are saved." in client.get(LIST).text
    save(client, f"{LIST}?q=new", name="f3")
    (row,) = Preference.objects.all()
    assert row.value["f3"] == "q=new" and len(row.value) == saved_filters.MAX_FILTERS


def test_address_of_another_site_is_not_opened() -> None:
    response = browser("viewer").post(
        "/saved-filters/", {"name": "x"}, headers={"Referer": "http://elsewhere.example/endpoints/"}
    )
    assert response.headers["Location"] == LIST
