"""Request bodies: types, unknown fields, bounds, places in nested values, secrets."""

from __future__ import annotations

from typing import Any

import pytest
from rest_framework import serializers

from console.api.bodies import read_body
from console.core.errors import Problem, Refused


class _Item(serializers.Serializer[Any]):
    size = serializers.IntegerField(min_value=1, max_value=4000)


class _Body(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=5, help_text="Up to 5 letters.")
    kind = serializers.ChoiceField(choices=["a", "b"], default="a")
    price = serializers.FloatField(required=False, source="price_usd")
    secret = serializers.CharField(required=False, write_only=True, max_length=3)
    items_of = _Item(many=True, required=False)
    words = serializers.ListField(child=serializers.CharField(max_length=2), required=False)
    id = serializers.IntegerField(read_only=True)


def problems(data: Any, **more: Any) -> list[Problem]:
    with pytest.raises(Refused) as refused:
        read_body(_Body, data, **more)
    return list(refused.value.errors)


def test_values_are_converted_and_completed() -> None:
    read = read_body(_Body, {"name": " x ", "price": "2.5"})
    assert read == {"name": "x", "kind": "a", "price_usd": 2.5}
    assert read_body(_Body, None, partial=True) == {}


@pytest.mark.parametrize(
    ("data", "field", "remedy"),
    [
        ({}, "name", "Enter a value."),
        ({"name": "too long"}, "name", "Up to 5 letters."),
        ({"name": "x", "kind": "c"}, "kind", "Use one of: a, b."),
        ({"name": "x", "price": "nan"}, "price", "Correct the value."),
        ({"name": "x", "price": True}, "price", "Correct the value."),
        ({"name": "x", "id": 1}, "id", "Known fields: name, kind, price, secret, items_of, words."),
        (
            {"name": "x", "items_of": [{"size": 1}, {"size": 0}]},
            "items_of[1].size",
            "Use a whole number from 1 to 4,000.",
        ),
        ({"name": "x", "words": ["a", "bcd"]}, "words[1]", "Correct the value."),
        ([], "", "Send a JSON object."),
    ],
)
def test_problem_names_place_and_remedy(data: Any, field: str, remedy: str) -> None:
    (problem,) = problems(data)
    assert (problem.field, problem.remedy) == (field, remedy)


def test_every_problem_is_reported_and_no_secret() -> None:
    reported = problems({"name": "too long", "secret": "hunter2", "secrte": "hunter2"})
    assert {problem.field for problem in reported} == {"name", "secret", "secrte"}
    assert "hunter2" not in str(reported)
    assert "too long" in str(reported)
