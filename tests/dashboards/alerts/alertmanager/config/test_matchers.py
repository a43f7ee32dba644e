"""Matchers with Alertmanager's semantics, without expensive patterns."""

from __future__ import annotations

import pytest

from dashboards.alerts.alertmanager.config.matchers import Matcher, matches, parse, pinned_value

LABELS = {"alertname": "HighTTFT", "severity": "page", "endpoint": "chat"}


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("", True),
        ('severity="page"', True),
        ("severity=page", True),
        (' severity = "page" ', True),
        ("severity!=page", False),
        ("team=", True),  # a missing label is ""
        ('team=""', True),
        ("team!=research", True),
        ("endpoint=~ch.*", True),
        ("endpoint=~ch", False),  # a pattern matches the whole value
        ("endpoint!~(chat|docs)", False),
        ("alertname=~High[A-Z]+", True),
        ("severity=page\nendpoint=docs", False),
        ("severity=page\n\nendpoint=chat", True),
    ],
)
def test_matchers_equal_those_of_alertmanager(text: str, matching: bool) -> None:
    assert matches(parse(text), LABELS) is matching


def test_matcher_round_trips() -> None:
    for value in ("page", 'a "quoted" one', "back\\slash", "a, b = c"):
        one = Matcher("severity", "!=", value)
        assert parse(str(one)) == (one,)
        assert parse([str(one)]) == (one,)


@pytest.mark.parametrize(
    "text",
    [
        "severity",
        "=page",
        '5xx="page"',
        'severity="page" and more',
        "severity=a\x00b",
        "endpoint=~(",
        "endpoint=~(a+)+",
        "endpoint=~(a|aa)*b",
        "endpoint=~.*.*.*.*.*x",
        "endpoint=~a{1000}",
        "endpoint=~(?=a)",
        "endpoint=~(?i)a",
        r"endpoint=~(.)\1",
        "endpoint=" + "x" * 400,
        "\n".join(["severity=page"] * 21),
    ],
)
def test_invalid_matcher_is_rejected(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)


@pytest.mark.parametrize("given", [None, 5, {"a": "b"}, [5], [None]])
def test_non_string_is_rejected(given: object) -> None:
    with pytest.raises(ValueError):
        parse(given)


def test_only_equality_selects_an_endpoint() -> None:
    assert pinned_value(parse('severity=page\nendpoint="chat"'), "endpoint") == "chat"
    assert pinned_value(parse("endpoint=~chat"), "endpoint") == ""
    assert pinned_value(parse("endpoint!=chat"), "endpoint") == ""
