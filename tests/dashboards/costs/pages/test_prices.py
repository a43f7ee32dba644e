"""Price entry in place: as an amount or from a list price."""

from __future__ import annotations

from typing import Any

import pytest

from console.audit.models import AuditEvent
from console.catalogue import selectors as catalogue
from dashboards.costs.formulas.price_terms import THIS_MACHINE
from tests.dashboards.costs.prices.test_factors import endpoint
from tests.support.people import Cast, cast, client_of

URL = f"/costs/prices/{THIS_MACHINE}/"


@pytest.fixture
def people(db: None) -> Cast:
    found = cast()
    endpoint("demo")
    return found


def text_of(user: Any, url: str, **headers: Any) -> str:
    answer = client_of(user).get(url, headers=headers)
    assert answer.status_code == 200, url
    return answer.content.decode()


def test_price_is_set_in_one_field(people: Cast) -> None:
    page = text_of(people.alice, "/costs/")
    assert "Price of This machine (USD/h)" in page
    assert "List prices of similar machines: EC2, us-east-1, on demand, 2026-11-23" in page
    alice = client_of(people.alice)
    done = alice.post(URL, {"usd_hour": "1,20", "back": "/costs/?range=7d"})
    assert (done.status_code, done["Location"]) == (302, "/costs/?range=7d")
    made = catalogue.find(THIS_MACHINE)
    assert made is not None
    assert made.instance.price_usd_hour == 1.2
    assert made.instance.price_date is not None and made.instance.price_date.day == 1
    assert made.instance.vcpus >= 1
    assert AuditEvent.objects.filter(target=f"instance-type/{THIS_MACHINE}").exists()
    assert "Price of This machine" not in text_of(people.alice, "/costs/"), "at once in effect"


def test_list_price_is_set_with_one_click(people: Cast) -> None:
    alice = client_of(people.alice)
    assert alice.post(URL, {"offer": "m7i.large", "usd_hour": ""}).status_code == 302
    made = catalogue.find(THIS_MACHINE)
    assert made is not None
    assert made.instance.price_usd_hour == 0.1008
    assert (
        made.instance.price_source
        == "List price of m7i.large: EC2, us-east-1, on demand, 2026-11-23"
    )


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "Enter a price."),
        ("cheap", "&quot;cheap&quot; is not a price."),
        ("-1", "is not a price."),
        ("nan", "is not a price."),
        ("1e9", "is not a price."),
    ],
)
def test_invalid_price_is_rejected_in_place(people: Cast, typed: str, message: str) -> None:
    refused = client_of(people.alice).post(URL, {"usd_hour": typed})
    assert refused.status_code == 400
    page = refused.content.decode()
    assert message in page
    assert "such as 1.20" in page
    assert f'value="{typed}"' in page, "the entry is kept"
    assert catalogue.find(THIS_MACHINE) is None


def test_setting_prices_requires_the_role(people: Cast) -> None:
    assert client_of(people.charlie).post(URL, {"usd_hour": "1"}).status_code == 403
    assert "Ask an administrator for access" in text_of(people.charlie, "/costs/")
    assert client_of(people.alice).post("/costs/prices/none-such/").status_code == 404


def test_price_form_of_boards(people: Cast) -> None:
    part = text_of(
        people.alice,
        "/costs/prices/",
        HX_Request="true",
        HX_Current_URL="http://x/dashboards/cost/",
    )
    assert 'name="back" value="/dashboards/cost/"' in part
    assert "<html" not in part
    client_of(people.alice).post(URL, {"usd_hour": "1"})
    assert text_of(people.alice, "/costs/prices/", HX_Request="true").strip() == ""


def test_redirects_stay_in_the_console(people: Cast) -> None:
    for back in ("//evil.example/", "https://evil.example/", "javascript:x"):
        done = client_of(people.alice).post(URL, {"usd_hour": "1", "back": back})
        assert done["Location"] == "/costs/"
