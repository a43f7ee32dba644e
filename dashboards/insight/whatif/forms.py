"""Form of a what-if analysis, derived from the table of fields."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from console.core.errors import Problem, Refused
from console.web.serializer_form import SerializerForm
from dashboards.insight.whatif.actions import WhatIfRequest
from dashboards.insight.whatif.inputs import FIELDS, Values, WhatIfValuesSerializer

_LOCAL = "%Y-%m-%dT%H:%M"


class WhatIfForm(SerializerForm):
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
        self, present: Values, period: tuple[Any, Any] | None, traces: list[str], data: Any = None
    ) -> None:
        super().__init__(WhatIfValuesSerializer(), data, present)
        for declared in FIELDS:
            self.fields[declared.name].help_text = declared.help
        trace: Any = self.fields["trace"]
        trace.choices = [("", "Recorded requests"), *((name, name) for name in traces)]
        for position, name in enumerate(("begin", "end")):
            field = self.fields[name]
            field.widget.input_type = "datetime-local"
            if period is not None:
                field.initial = timezone.localtime(period[position]).strftime(_LOCAL)

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
