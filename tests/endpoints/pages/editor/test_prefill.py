"""The endpoint's form opened with a proposed change."""

from __future__ import annotations

from typing import Any

import pytest
from django.http import QueryDict

from endpoints.models import Endpoint
from endpoints.pages.editor.prefill import Prefill, prefilled_edit_url, read_prefill
from tests.endpoints.pages.editor.test_views import EDIT, sent
from tests.support.console import browser, make_endpoint

pytestmark = pytest.mark.django_db
CHANGES = {
    "replicas": 2,
    "cache.l1.enabled": False,
    "routing.strategy": "kvaware",
    "worker_args": ["--max-num-seqs=8", "--seed=3"],
    "tags": {"team": "a&b=c"},
}


def test_values_of_any_kind_survive_the_link() -> None:
    query = prefilled_edit_url("demo", CHANGES).partition("?")[2]
    assert read_prefill(QueryDict(query).dict()) == Prefill(CHANGES, {})
    assert prefilled_edit_url("demo", {}) == EDIT


def test_the_form_has_the_change_and_nothing_is_saved_before_the_user_saves() -> None:
    make_endpoint("demo", replicas=1, cache={"l1": {"enabled": True}})
    page = browser("operator")
    answer = page.get(prefilled_edit_url("demo", CHANGES))
    text = answer.content.decode()
    assert "The link filled in these changes; nothing is saved yet" in text
    assert "Replicas</a>: 1 → 2" in text
    assert "data-dirty" in text
    assert Endpoint.objects.get().generation == 1
    typed = sent(answer)
    assert (typed["replicas"], typed["routing.strategy"]) == ("2", "kvaware")
    assert "cache.l1.enabled" not in typed
    assert page.post(EDIT, typed).status_code == 302
    saved = Endpoint.objects.get().parsed
    assert (saved.replicas, saved.routing.strategy, saved.cache.l1.enabled) == (2, "kvaware", False)
    assert list(saved.worker_args) == CHANGES["worker_args"]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("replicas=2", ""),  # as it is
        ("note=Why", ""),
        ("name=other", "Name: Cannot be changed."),
        ("nonsense=1", "nonsense: Unknown field."),
        ("placement.scheduler=x", "Not in the form of this endpoint."),
        ("replicas=many", "Replicas: Replicas must be a whole number"),
        ("replicas=-3", "Replicas: Replicas cannot be less than 0"),
        ("routing.strategy=nope", "Strategy: &#x27;nope&#x27; is not a value of Strategy."),
        ("routing.record_traffic=maybe", "must be true or false"),
        (f"model={'x' * 3000}", "Model: Longer than 2,000 characters."),
    ],
)
def test_other_links_show_the_form_as_it_is_and_the_reason(query: str, reason: str) -> None:
    made: Any = make_endpoint("demo", replicas=2)
    answer = browser("operator").get(f"{EDIT}?{query}")
    text = answer.content.decode()
    assert answer.status_code == 200
    assert ("Parts of the link are ignored" in text) is bool(reason)
    assert reason in text
    assert "The link filled in these changes" not in text
    typed = sent(answer)
    assert (typed["replicas"], typed["routing.strategy"]) == ("2", made.spec["routing"]["strategy"])
    assert f'value="{made.name}"' in text and 'value="other"' not in text
    assert browser("viewer").get(f"{EDIT}?{query}").status_code == 403
