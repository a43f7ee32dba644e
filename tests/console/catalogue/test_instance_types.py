"""Catalogue: built-in types, overrides, and equal errors in all interfaces."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from django.test import Client

from console.audit.models import AuditEvent
from console.catalogue import selectors
from console.catalogue.core.builtin import BUILTIN, GIB
from console.catalogue.instance_types import INSTANCE_TYPES
from console.core.errors import Refused
from tests.console.conftest import Cast
from tests.support.people import client_of

NODE = {"vcpus": 64, "memory_gib": 512, "gpu": "H100", "gpus": 4, "gpu_memory_gib": 79.6}
PRICED = {**NODE, "price_usd_hour": 12.5, "price_date": "2026-11-01", "price_source": "contract"}


@pytest.mark.django_db
def test_built_in_types_are_valid() -> None:
    for instance in BUILTIN.values():
        row = selectors.make_row(instance)
        row.full_clean(exclude=["changed_by"])
        assert row.instance == instance
        assert abs(row.gpu_memory_gib * GIB - instance.gpu_bytes) < GIB / 100


def test_prices_equal_the_reference() -> None:
    assert BUILTIN["ml.g5.12xlarge"].price_usd_hour == 7.09
    assert BUILTIN["ml.p5.48xlarge"].price_usd_hour == 63.296
    assert BUILTIN["p5e.48xlarge"].price_usd_hour is None, "there is no such price"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"vcpus": 0}, "vcpus"),
        ({"vcpus": 1.5}, "vcpus"),
        ({"vcpus": True}, "vcpus"),
        ({"memory_gib": "many"}, "memory_gib"),
        ({"memory_gib": float("nan")}, "memory_gib"),
        ({"gpus": 99}, "gpus"),
        ({"gpu": ""}, "gpu"),
        ({"gpu_memory_gib": 0}, "gpu_memory_gib"),
        ({"gpu": 7}, "gpu"),
        ({"price_usd_hour": -1, "price_date": "2026-01-01"}, "price_usd_hour"),
        ({"price_usd_hour": 3.0}, "price_date"),
        ({"price_usd_hour": 3.0, "price_date": "yesterday"}, "price_date"),
        ({"colour": "red"}, "colour"),
    ],
)
@pytest.mark.django_db
def test_invalid_input_is_rejected_by_field(
    people: Cast, change: dict[str, Any], field: str
) -> None:
    with pytest.raises(Refused) as caught:
        INSTANCE_TYPES.save(people.alice, "metal.4xh100", {**NODE, **change})
    assert caught.value.errors[0].field == field
    assert all(problem.remedy for problem in caught.value.errors)


@pytest.mark.parametrize("name", ["", "a b", "../x", "x" * 64, None, "-a"])
@pytest.mark.django_db
def test_name_is_a_valid_node_label(people: Cast, name: Any) -> None:
    with pytest.raises(Refused) as caught:
        INSTANCE_TYPES.save(people.alice, name, NODE)
    assert caught.value.errors[0].field == "name"


@pytest.mark.django_db
def test_stored_type_overrides_the_built_in_one(people: Cast) -> None:
    before = BUILTIN["ml.g5.xlarge"]
    changes = {"price_usd_hour": 0.9, "price_date": "2026-11-01"}
    INSTANCE_TYPES.save(people.alice, "ml.g5.xlarge", changes)
    found = selectors.instances_by_name()["ml.g5.xlarge"]
    assert found.price_usd_hour == 0.9
    assert found.memory_bytes == before.memory_bytes, "what is left out stays"
    assert len(selectors.list_types()) == len(BUILTIN)
    assert AuditEvent.objects.get().changes["price_usd_hour"] == [1.408, 0.9]
    assert INSTANCE_TYPES.remove(people.alice, "ml.g5.xlarge")
    assert selectors.instances_by_name()["ml.g5.xlarge"] == before


@pytest.mark.django_db
def test_custom_type_is_created_and_deleted(people: Cast) -> None:
    INSTANCE_TYPES.save(people.alice, "metal.4xh100", PRICED)
    entry = selectors.find("metal.4xh100")
    assert entry is not None and entry.changed_by is not None
    assert (entry.origin, entry.changed_by.username) == ("added", "alice")
    assert not INSTANCE_TYPES.remove(people.alice, "metal.4xh100")
    for name, status in (("metal.4xh100", 404), ("ml.g5.xlarge", 409)):
        with pytest.raises(Refused) as caught:
            INSTANCE_TYPES.remove(people.alice, name)
        assert caught.value.status_code == status


@pytest.mark.django_db
def test_over_rest(people: Cast) -> None:
    alice = client_of(people.alice)
    url = "/api/v1/instance-types/metal.4xh100/"
    assert alice.get(url).status_code == 404
    made = alice.put(url, PRICED, content_type="application/json")
    assert made.status_code == 200, made.content
    assert {field: made.json()[field] for field in INSTANCE_TYPES.fields.names} == PRICED
    assert alice.get(url).json() == made.json()
    assert made.json() in alice.get("/api/v1/instance-types/").json()["results"]
    refused = alice.put(url, {"vcpus": -1}, content_type="application/json")
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["field"] == "vcpus"
    assert alice.put(url, [1], content_type="application/json").status_code == 400
    renamed = alice.put(url, {**PRICED, "name": "other"}, content_type="application/json")
    assert (renamed.status_code, renamed.json()["field"]) == (400, "name")
    assert alice.delete(url).status_code == 204


@pytest.mark.django_db
@pytest.mark.parametrize("method", ["put", "delete"])
def test_viewer_changes_nothing(people: Cast, method: str) -> None:
    charlie = client_of(people.charlie)
    url = "/api/v1/instance-types/ml.g5.xlarge/"
    answer = getattr(charlie, method)(url, NODE, content_type="application/json")
    assert answer.status_code == 403
    assert charlie.get("/instance-types/new/").status_code == 403
    page = charlie.get("/instance-types/").content.decode()
    assert "ml.p5.48xlarge" in page
    assert "Edit" not in page


def post(client: Client, url: str, data: dict[str, Any]) -> Any:
    return client.post(url, {key: "" if value is None else value for key, value in data.items()})


@pytest.mark.django_db
def test_form_shows_the_same_errors_at_its_fields(people: Cast) -> None:
    alice = client_of(people.alice)
    wrong = post(alice, "/instance-types/new/", {"name": "metal", **NODE, "memory_gib": "many"})
    assert wrong.status_code == 400
    assert "Memory (GiB) must be a number from 0.5 to 65,536" in wrong.content.decode()
    assert 'value="many"' in wrong.content.decode(), "what was typed stays"
    done = post(alice, "/instance-types/new/", {"name": "metal", **PRICED})
    assert done.status_code == 302
    assert selectors.instances_by_name()["metal"].price_usd_hour == 12.5
    shown = alice.get("/instance-types/metal/edit/").content.decode()
    assert 'value="12.5"' in shown
    assert "disabled" in shown, "a name is not changed"
    changed = {**PRICED, "price_usd_hour": "", "price_date": ""}
    assert post(alice, "/instance-types/metal/edit/", changed).status_code == 302
    assert selectors.instances_by_name()["metal"].price_usd_hour is None
    assert alice.post("/instance-types/metal/remove/").status_code == 302
    assert "metal" not in selectors.instances_by_name()
    assert alice.get("/instance-types/metal/edit/").status_code == 404


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["ml.g5.12xlarge", "p5e.48xlarge"])
def test_what_is_read_can_be_sent_back(people: Cast, name: str) -> None:
    alice, url = client_of(people.alice), f"/api/v1/instance-types/{name}/"
    document = alice.get(url).json()
    again = alice.put(url, document, content_type="application/json").json()
    assert again == {**document, "origin": "changed", "changed_by": "alice"}
    page = alice.get(f"/instance-types/{name}/edit/").context["form"]
    typed = {one.html_name: one.value() for one in page if one.html_name != "name"}
    assert post(alice, f"/instance-types/{name}/edit/", typed).status_code == 302
    assert alice.get(url).json() == again


@pytest.mark.django_db
def test_every_problem_is_reported_at_once(people: Cast) -> None:
    data = {"vcpus": 0, "memory_gib": "x", "gpus": 1, "price_usd_hour": 2, "colour": "red"}
    with pytest.raises(Refused) as caught:
        INSTANCE_TYPES.save(people.alice, "a b", data)
    fields = {problem.field for problem in caught.value.errors}
    assert fields == {"name", "vcpus", "memory_gib", "gpu", "colour"}


@pytest.mark.django_db
def test_price_applies_from_its_date(people: Cast) -> None:
    def set_price(price: float, day: str) -> None:
        facts = {**PRICED, "price_usd_hour": price, "price_date": day}
        INSTANCE_TYPES.save(people.alice, "metal.x", facts)

    def on(day: str) -> float | None:
        return selectors.load_prices().on("metal.x", date.fromisoformat(day))

    set_price(2.0, "2026-09-10")
    set_price(3.0, "2026-10-01")
    found = [on(day) for day in ("2026-09-09", "2026-09-10", "2026-09-30", "2026-10-01")]
    assert found == [None, 2.0, 2.0, 3.0]
    INSTANCE_TYPES.save(people.alice, "metal.x", {"vcpus": 8})
    assert len(INSTANCE_TYPES.get("metal.x").prices) == 2, "nothing was said of its price"
    set_price(2.5, "2026-09-20")
    found = [on(day) for day in ("2026-09-19", "2026-09-20", "2026-10-05")]
    assert found == [2.0, 2.5, 2.5], "what was said later holds for later days"
    rows = client_of(people.charlie).get("/api/v1/instance-types/metal.x/prices/").json()
    assert [row["price_usd_hour"] for row in rows["results"]] == [2.5, 2.0]
    page = client_of(people.alice).get("/instance-types/metal.x/edit/").content.decode()
    assert "Price history" in page
    INSTANCE_TYPES.remove(people.alice, "metal.x")
    assert on("2026-09-20") == 2.5, "what is forgotten was paid all the same"
    assert selectors.load_prices().on("metal.x", date.max) is None


@pytest.mark.django_db
def test_built_in_price_applies_before_the_first_custom_one(people: Cast) -> None:
    facts = {"price_usd_hour": 5.0, "price_date": "2026-10-01"}
    INSTANCE_TYPES.save(people.alice, "ml.g5.12xlarge", facts)
    found = selectors.load_prices()
    days = ("2026-09-30", "2026-10-01")
    assert [found.on("ml.g5.12xlarge", date.fromisoformat(day)) for day in days] == [7.09, 5.0]
