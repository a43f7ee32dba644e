"""Comparison of two pasted prompts."""

from __future__ import annotations

import json

import pytest
from django.http import HttpResponse

from endpoints.pages.playground.comparison import MAX_TEXT
from tests.support.console import browser

pytestmark = pytest.mark.django_db
URL = "/playground/prompts/"
RULES = "\n".join(
    f"Rule {n}: answer question {n} with care and name the source." for n in range(40)
)


def compare(first: str, second: str) -> HttpResponse:
    answer: HttpResponse = browser("viewer").post(URL, {"first": first, "second": second})
    return answer


def chat(time: str) -> str:
    system = {"role": "system", "content": f"It is {time}.\n{RULES}"}
    return json.dumps({"model": "m", "messages": [system, {"role": "user", "content": "Hello?"}]})


@pytest.mark.parametrize("body", [True, False])
def test_changed_time_in_front_is_found(body: bool) -> None:
    earlier, later = "2026-11-23 10:00:01", "2026-11-23 10:07:44"
    texts = [chat(one) if body else f"It is {one}.\n{RULES}" for one in (earlier, later)]
    page = compare(*texts).content.decode()
    assert "Timestamp changed" in page or "timestamp" in page.lower()
    assert "tokens behind it stay the same" in page
    assert ("message 1 (system)" in page) == body


def test_prompts_that_go_on_differently() -> None:
    page = compare(f"{RULES}\nFirst question.", f"{RULES}\nAnother one?").content.decode()
    assert "No early change" in page
    assert "can be cached" in page


def test_equal_prompts() -> None:
    assert "Equal prompts" in compare(RULES, RULES).content.decode()


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("", "x", "Prompt 1 is empty"),
        ("x", "y" * (MAX_TEXT + 1), "Prompt 2 has 400001 characters"),
        ("x", '{"a": 1}', "Prompt 2 is neither a text nor an object"),
    ],
)
def test_what_cannot_be_compared_is_named(first: str, second: str, message: str) -> None:
    answer = compare(first, second)
    assert answer.status_code == 400
    assert message in answer.content.decode()


def test_texts_are_escaped() -> None:
    page = compare(f"<b>1</b> {RULES}", f"<b>2</b> {RULES}").content.decode()
    assert "<b>1" not in page
    assert "&lt;b&gt;1" in page
