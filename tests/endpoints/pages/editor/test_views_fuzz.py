"""Arbitrary input: YAML and form stay equivalent, and no page crashes."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from endpoints.pages.editor import spec_text
from endpoints.pages.editor.form_fields import format_value, parse_value, to_form_data
from endpoints.spec.endpoint_spec import SpecErrors, flatten, nest
from endpoints.spec.fields import BY_PATH, FIELDS
from tests.endpoints.pages.editor.test_views import EDIT, NEW
from tests.support.console import browser, make_endpoint

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    [
        "yes",
        "null",
        "~",
        "1e3",
        "0x1f",
        "1_000",
        "2026-01-01",
        "12:30:00",
        ".inf",
        "- a",
        "a: b",
        "#",
    ]
)
OTHERS = (
    *("yaml", "touched", "start", "start_with", "generation", "note", "team"),
    *("text_agreed", "form_agreed", "seen_generation", "on_cluster", "set_aside"),
)
PATHS = st.sampled_from([field.path for field in FIELDS if field.kind is str])


@settings(max_examples=60, deadline=None)
@given(path=PATHS, text=TEXTS)
def test_text_round_trips_through_yaml(path: str, text: str) -> None:
    try:
        back = spec_text.parse_text(spec_text.to_text(nest({"name": "x", path: text})))
    except SpecErrors:
        # A character which YAML has no place for; no field takes it either.
        assert not text.isprintable()
        return
    assert flatten(back.data).get(path, BY_PATH[path].default) == text


@settings(max_examples=40, deadline=None)
@given(
    number=st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9, allow_nan=False),
    words=st.lists(st.text("ab=-{}'\"", min_size=1, max_size=6), max_size=3),
)
def test_values_round_trip_through_the_form(number: float, words: list[str]) -> None:
    for path, value in (
        ("cache.l1.size_gib", float(number)),
        ("replicas", int(number)),
        ("tags", {f"k{index}": word for index, word in enumerate(words)}),
        ("scaling.triggers", [{"type": word} for word in words]),
    ):
        field = BY_PATH[path]
        seen = str(format_value(field, value))
        back = parse_value(field, seen) if seen else ([] if field.kind is list else {})
        assert back == pytest.approx(value) if isinstance(value, float) else back == value
        assert to_form_data({path: back})[path] == seen


@pytest.fixture
def page(db: None) -> Client:
    make_endpoint("demo")
    return browser("operator")


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    typed=st.dictionaries(st.sampled_from(sorted(BY_PATH)), TEXTS, max_size=4),
    more=st.dictionaries(
        st.sampled_from(
            [
                "yaml",
                "touched",
                "start",
                "start_with",
                "generation",
                "note",
                "team",
                "seen_generation",
                "on_cluster",
                "set_aside",
            ]
        ),
        TEXTS,
        max_size=4,
    ),
    drawn=st.sampled_from(
        ["", *(f"?drawn={tab}" for tab in ("anew", "form", "yaml", "start", "merge"))]
    ),
)
@example(typed={}, more={"generation": "9" * 40, "yaml": "\x00"}, drawn="?drawn=merge")
@example(typed={"placement.cluster": "x"}, more={"yaml": "a: &a [*a]"}, drawn="")
@pytest.mark.django_db
def test_no_page_crashes(
    page: Client, typed: dict[str, str], more: dict[str, Any], drawn: str
) -> None:
    sent = {**typed, **more}
    for path in (f"{NEW}{drawn}", f"{EDIT}{drawn}", f"{NEW}look/", f"{EDIT}look/"):
        assert page.post(path, sent).status_code < 500, path
