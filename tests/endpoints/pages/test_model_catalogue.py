"""Page of known models."""

from __future__ import annotations

import pytest

from endpoints.fit.estimate import FitVerdict
from endpoints.fit.model_catalogue import KNOWN_MODELS
from endpoints.placement import model_list
from tests.support.console import browser

pytestmark = pytest.mark.django_db
PAGE = "/models/"


def text(query: str = "", role: str = "operator") -> str:
    return str(browser(role).get(f"{PAGE}{query}").content.decode())


def test_models_are_listed_with_size_licence_and_fit() -> None:
    names = [model.name for model in model_list.list_models()]
    assert len(names) >= len(KNOWN_MODELS)
    page = text()
    assert names[0] in page
    assert "GiB" in page and "Licence" in page


def test_search_and_fit_filter() -> None:
    verdicts = {one.name: one.here.verdict for one in model_list.list_models() if one.here}
    large = max(
        (one for one in model_list.list_models() if one.params), key=lambda one: one.params
    ).name
    assert verdicts[large] is FitVerdict.DOES_NOT_FIT, "a test machine is smaller than that"
    assert f"with {large}<" in text(f"?search={large}")
    assert f"with {large}<" not in text(f"?search={large}&fits=1")
    assert "No known model matches" in text("?search=nonsense-9000")
    part = browser("viewer").get(f"{PAGE}?search=qwen", headers={"HX-Request": "true"})
    assert "<html" not in part.content.decode()


def test_endpoint_is_created_from_a_model() -> None:
    name = KNOWN_MODELS[0].name
    page = text(f"?search={name}")
    address = page.partition('href="/endpoints/new/?model=')[2].partition('"')[0]
    form = browser("operator").get(f"/endpoints/new/?model={address}").content.decode()
    assert f'value="{name}"' in form
    assert "/endpoints/new/" not in text(f"?search={name}", "viewer").partition("<main")[2]
    long = browser("operator").get("/endpoints/new/?model=" + "x" * 999).content.decode()
    assert "x" * 201 not in long
