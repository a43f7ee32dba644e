"""A form has what its serializer declares, and leaves validation to the action."""

from __future__ import annotations

from typing import Any

from django.http import QueryDict
from rest_framework import serializers

from console.core.errors import Problem
from console.web.serializer_form import SerializerForm


class _Fields(serializers.Serializer[Any]):
    name = serializers.CharField(help_text="Lower case.")
    size = serializers.FloatField(min_value=1, max_value=50, required=False)
    kind = serializers.ChoiceField(choices=[("a", "Apple"), ("b", "Bee")], initial="b")
    lines = serializers.ListField(style={"rows": 2}, required=False, label="Rows")
    token = serializers.CharField(style={"input_type": "password"}, required=False)
    enabled = serializers.BooleanField(initial=True)
    id = serializers.IntegerField(read_only=True)


def test_form_shows_what_the_serializer_declares() -> None:
    values = {"size": 2.0, "lines": ["x", "y"], "token": "hunter2"}
    form = SerializerForm(_Fields(), None, values)
    page = str(form)
    assert set(form.fields) == {"name", "size", "kind", "lines", "token", "enabled"}
    for expected in (
        'value="2" min="1" max="50"',
        "Lower case.",
        '<option value="b" selected>Bee</option>',
        "Rows",
        "x\ny</textarea>",
    ):
        assert expected in page.replace(' inputmode="decimal" step="any"', ""), page
    assert "hunter2" not in page
    assert list(SerializerForm(_Fields(), names=("kind", "name")).fields) == ["kind", "name"]


def test_values_are_returned_as_typed() -> None:
    form = SerializerForm(_Fields(), QueryDict("name=+x+&size=many&kind=c"))
    assert form.typed() == {
        "name": "x",
        "size": "many",
        "kind": "c",
        "lines": "",
        "token": "",
        "enabled": False,
    }


def test_remedy_beside_the_field_is_not_repeated() -> None:
    form = SerializerForm(_Fields(), QueryDict("name=X"))
    form.refuse([Problem("name", "X", "Invalid value.", "Lower case.", "invalid")])
    assert form.errors["name"] == ["Invalid value."]
