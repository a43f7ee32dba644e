"""Forms of silences, receivers and routes. They judge nothing themselves: the actions do."""

from __future__ import annotations

from typing import Any

from django import forms

from console.refusals import Refused
from console.web.forms import Styled

CONDITIONS = (
    'One condition a line, such as endpoint="chat", severity="page", alertname=~"L2.*" or '
    'team!="research". All of them must hold.'
)
DURATIONS = (
    ("30m", "30 minutes"),
    ("2h", "2 hours"),
    ("8h", "8 hours"),
    ("1d", "1 day"),
    ("3d", "3 days"),
    ("7d", "7 days"),
    ("30d", "30 days"),
)


class Refusable(Styled, forms.Form):
    """`given` is what was typed, as the actions take it."""

    def given(self) -> dict[str, Any]:
        return {name: str(self.data.get(name, "")).strip() for name in self.fields}

    def refuse(self, refused: Refused) -> None:
        self.full_clean()
        for problem in refused.errors:
            known = problem.field in self.fields
            self.add_error(problem.field if known else None, f"{problem.message} {problem.remedy}")


class SilenceForm(Refusable):
    matchers = forms.CharField(
        label="Which alerts",
        required=False,
        help_text=CONDITIONS,
        widget=forms.Textarea({"rows": 4, "spellcheck": "false", "class": "font-monospace"}),
    )
    duration = forms.ChoiceField(label="For", choices=DURATIONS, initial="2h", required=False)
    starts_at = forms.CharField(
        label="From (UTC)",
        required=False,
        help_text="Empty: from now on.",
        widget=forms.DateTimeInput({"type": "datetime-local"}),
    )
    comment = forms.CharField(
        label="Why",
        required=False,
        help_text="Whoever wonders about the silence reads this.",
    )
