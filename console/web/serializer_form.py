"""Forms made of the serializer that validates them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django import forms
from django.forms.utils import ErrorDict
from rest_framework import serializers

from console.core.errors import Problem
from console.web.forms import ActionForm


class SerializerForm(ActionForm):
    """Form with the fields of a serializer: its labels, help texts, choices, and `initial`.

    Of a field's `style`, `rows` makes a text area, `input_type` sets that of the input and the
    others are HTML attributes. `values`: as the serializer represents them; `names`: the fields
    shown and their order, default all.
    """

    def __init__(
        self,
        serializer: serializers.Serializer[Any],
        data: Mapping[str, Any] | None = None,
        values: Mapping[str, Any] | None = None,
        names: Iterable[str] = (),
    ) -> None:
        shown = {name: field for name, field in serializer.fields.items() if not field.read_only}
        super().__init__(data)
        for name in names or shown:
            self.fields[name] = make_field(shown[name])
            if values is not None and name in values:
                self.initial[name] = _plain(values[name], shown[name])

    def full_clean(self) -> None:
        """Leave validation to the action."""
        self._errors = ErrorDict()
        self.cleaned_data = {}

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Attach the problems; a remedy that the page shows as help text is left out."""
        hints = {field.help_text for field in self.fields.values()}
        super().refuse(
            replace(problem, remedy="") if problem.remedy in hints else problem
            for problem in problems
        )

    def typed(self) -> dict[str, Any]:
        """Return the submitted values; of flags, whether they are set."""
        return {
            name: field.widget.value_from_datadict(self.data, self.files, name)
            if isinstance(field, forms.BooleanField)
            else self.text_of(name)
            for name, field in self.fields.items()
        }


def make_field(field: serializers.Field[Any, Any, Any, Any]) -> forms.Field:
    label, style = str(field.label), dict(field.style)
    options: dict[str, Any] = {
        "label": label,
        "help_text": str(field.help_text or ""),
        "initial": _plain(field.initial, field),
        "required": field.required,
    }
    if isinstance(field, serializers.BooleanField):
        return forms.BooleanField(**{**options, "required": False})
    choices = getattr(field, "choices", None)
    if choices is not None:
        return forms.ChoiceField(choices=list(choices.items()), **options)
    if "rows" in style:
        return forms.CharField(widget=forms.Textarea(style), **options)
    widget: forms.Widget = forms.TextInput(style)
    if isinstance(field, serializers.DateTimeField):
        widget = forms.DateTimeInput({"type": "datetime-local", **style})
    elif isinstance(field, serializers.IntegerField | serializers.FloatField):
        widget = forms.NumberInput({**_number_attributes(field), **style})
    elif style.pop("input_type", "") == "password":
        widget = forms.PasswordInput({"autocomplete": "new-password", **style})
    return forms.CharField(widget=widget, **options)


def _number_attributes(field: Any) -> dict[str, str]:
    whole = isinstance(field, serializers.IntegerField)
    attributes = {"inputmode": "numeric", "step": "1"}
    if not whole:
        attributes = {"inputmode": "decimal", "step": "any"}
    bounds = {"min": field.min_value, "max": field.max_value}
    return attributes | {name: f"{n:.15g}" for name, n in bounds.items() if n is not None}


def _plain(value: Any, field: serializers.Field[Any, Any, Any, Any]) -> Any:
    """Return a value as people type it: the items of a list in lines, or with commas between."""
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, list):
        return ("\n" if "rows" in field.style else ", ").join(map(str, value))
    return value
