"""Forms of inference keys and key groups; `keys.terms` and `keys.actions` validate."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django import forms
from django.http import QueryDict

from console.web.forms import ActionForm
from endpoints.keys.terms import PERIODS, KeyTerms
from endpoints.models import KeyGroup

KEEP_CHOICE: Final = "keep"
LIFETIMES: Final = (("30", "30 days"), ("90", "90 days"), ("365", "a year"), ("", "no end"))
GRACE: Final = (
    ("0", "at once"),
    ("3600", "after an hour"),
    ("86400", "after a day"),
    ("604800", "after a week"),
)
_NUMBERS = ("max_in_flight", "requests_per_minute", "tokens_per_minute", "budget_tokens")


def _number(label: str, hint: str) -> forms.CharField:
    widget = forms.TextInput(attrs={"inputmode": "numeric"})
    return forms.CharField(label=label, required=False, help_text=hint, widget=widget)


class KeyForm(ActionForm):
    name = forms.CharField(
        label="Name of the key", required=False, help_text="Such as the program that will use it."
    )
    expires_in_days = forms.ChoiceField(label="Ends after", choices=LIFETIMES, required=False)
    requests_per_minute = _number("Requests a minute", "0 or empty: as many as it likes.")
    tokens_per_minute = _number("Tokens a minute", "Prompt and completion.")
    max_in_flight = _number("Requests at a time", "More of them wait for their turn.")
    weight = forms.CharField(
        label="Weight", required=False, help_text="Its share while several keys wait; 1 is usual."
    )
    budget_tokens = _number("Budget of tokens", "Then it is refused until the period ends.")
    budget_period = forms.ChoiceField(
        label="for each UTC", choices=[(word, word) for word in PERIODS], required=False
    )
    models = forms.CharField(
        label="Models it may name",
        required=False,
        help_text="One a line. Empty: every model and adapter.",
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    pin = forms.BooleanField(label="May choose the worker itself", required=False)
    control = forms.BooleanField(
        label="May use paths which control a worker, such as /sleep", required=False
    )

    def __init__(self, data: QueryDict | None = None, terms: KeyTerms | None = None) -> None:
        super().__init__(data, initial=_initial(terms or KeyTerms()))
        self.terms = terms
        if terms is not None:
            del self.fields["name"]
            end = terms.expires_at
            kept = f"as it is: {end:%Y-%m-%d %H:%M} UTC" if end else "as it is: no end"
            field = self.fields["expires_in_days"]
            if isinstance(field, forms.ChoiceField):
                field.choices = [(KEEP_CHOICE, kept), *LIFETIMES]

    def answer(self) -> dict[str, Any]:
        """Return the input of `terms.parse`; invalid numbers stay text."""
        self.full_clean()
        typed = {name: str(self.data.get(name, "")).strip() for name in self.fields}
        found: dict[str, Any] = {name: _whole(typed[name]) for name in _NUMBERS}
        found["weight"] = _real(typed["weight"])
        found["budget_period"] = typed["budget_period"] or PERIODS[-1]
        lines = typed["models"].replace(",", "\n").splitlines()
        found["models"] = [line.strip() for line in lines if line.strip()]
        found["pin"], found["control"] = "pin" in self.data, "control" in self.data
        if typed["expires_in_days"] != KEEP_CHOICE:
            found["expires_in_days"] = _whole(typed["expires_in_days"]) or None
        return found


class GroupForm(ActionForm):
    name = forms.CharField(label="Name of the group", required=False)
    description = forms.CharField(label="What it is for", required=False)
    endpoints = forms.MultipleChoiceField(
        label="Endpoints its keys open", required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(
        self, data: QueryDict | None, names: Iterable[str], group: KeyGroup | None = None
    ) -> None:
        initial: dict[str, Any] = {}
        if group is not None:
            members = [endpoint.name for endpoint in group.endpoints.all()]
            initial = {
                "name": group.name,
                "description": group.description,
                "endpoints": members,
            }
        super().__init__(data, initial=initial)
        field = self.fields["endpoints"]
        if isinstance(field, forms.MultipleChoiceField):
            field.choices = [(name, name) for name in names]


def _initial(terms: KeyTerms) -> dict[str, Any]:
    found: dict[str, Any] = {name: getattr(terms, name) or "" for name in _NUMBERS}
    found |= {"weight": f"{terms.weight:g}", "budget_period": terms.budget_period}
    found |= {"models": "\n".join(terms.models), "pin": terms.pin, "control": terms.control}
    found["expires_in_days"] = "90"
    return found


def _whole(text: str) -> int | str:
    if not text:
        return 0
    return int(text) if text.isdecimal() and len(text) < 15 else text


def _real(text: str) -> float | str:
    try:
        return float(text) if text else 1.0
    except ValueError:
        return text
