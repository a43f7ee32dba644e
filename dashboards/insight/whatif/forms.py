"""Form of a what-if analysis, derived from the table of fields."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from console.core.errors import Problem, Refused
from console.web.forms import ActionForm
from dashboards.insight.whatif.actions import WhatIfRequest
from dashboards.insight.whatif.inputs import FIELDS, InputField, Values

_LOCAL = "%Y-%m-%dT%H:%M"


class WhatIfForm(ActionForm):
    """Values are validated by the action."""

    title = forms.CharField(max_length=80, required=False, label="Title", help_text="Optional.")
    begin = forms.CharField(label="Recorded from", widget=forms.DateTimeInput)
    end = forms.CharField(label="Recorded until", widget=forms.DateTimeInput)
    trace = forms.ChoiceField(
        required=False,
        label="Replayed requests",
        help_text="The recording always calibrates the model.",
    )

    def __init__(
        self, present: Values, period: tuple[Any, Any] | None, traces: list[str], *args: Any
    ) -> None:
        super().__init__(*args)
        trace: Any = self.fields["trace"]
        trace.choices = [("", "Recorded requests"), *((name, name) for name in traces)]
        for position, name in enumerate(("begin", "end")):
            field = self.fields[name]
            field.widget.input_type = "datetime-local"
            if period is not None:
                field.initial = timezone.localtime(period[position]).strftime(_LOCAL)
        for declared in FIELDS:
            self.fields[declared.name] = _field(declared, present)

    def values(self) -> list[Any]:
        return [self[field.name] for field in FIELDS]

    def read(self) -> WhatIfRequest:
        """Return the submitted wish. Raise Refused for a time that cannot be read."""
        values = {
            field.name: self.text_of(field.name) for field in FIELDS if field.name in self.data
        }
        return WhatIfRequest(
            values,
            begin=self._time("begin"),
            end=self._time("end"),
            title=self.text_of("title"),
            trace=self.text_of("trace"),
        )

    def _time(self, name: str) -> Any:
        text = self.text_of(name)
        if not text:
            return None
        try:
            moment = parse_datetime(text)
        except ValueError:
            moment = None
        if moment is None:
            remedy = "Enter a date and time such as 2026-11-23T10:00."
            raise Refused(Problem(name, text[:80], "Not a date and time.", remedy, "type"))
        return timezone.make_aware(moment) if timezone.is_naive(moment) else moment


def _field(one: InputField, present: Values) -> forms.Field:
    value = present[one.name]
    if one.choices:
        return forms.ChoiceField(
            choices=[(word, word) for word in one.choices],
            label=one.label,
            initial=value,
            help_text=one.help,
        )
    attrs = {
        "inputmode": "numeric" if one.whole else "decimal",
        "step": "1" if one.whole else "any",
    }
    attrs |= {"min": f"{one.low:.15g}", "max": f"{one.high:.15g}"}
    return forms.CharField(
        required=False,
        label=one.label,
        initial="" if value is None else f"{value:.15g}",
        help_text=one.help,
        widget=forms.NumberInput(attrs=attrs),
    )
