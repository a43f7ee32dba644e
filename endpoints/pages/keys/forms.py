"""Forms of inference keys and key groups; `keys.bodies` validates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django import forms
from django.http import QueryDict

from console.web.forms import ActionForm
from endpoints.keys.terms import PERIODS, KeyTerms
from endpoints.models import KeyGroup

KEEP_CHOICE: Final = "keep"
LIFETIMES: Final = (("30", "30 days"), ("90", "90 days"), ("365", "1 year"), ("", "No expiry"))
GRACE: Final = (
    ("0", "Immediately"),
    ("3600", "After 1 hour"),
    ("86400", "After 1 day"),
    ("604800", "After 7 days"),
)
_NUMBERS = ("max_in_flight", "requests_per_minute", "tokens_per_minute", "budget_tokens")


def _number(label: str, hint: str) -> forms.CharField:
    widget = forms.TextInput(attrs={"inputmode": "numeric"})
    return forms.CharField(label=label, required=False, help_text=hint, widget=widget)


class KeyForm(ActionForm):
    name = forms.CharField(
        label="Name", required=False, help_text="For example the client application."
    )
    expires_in_days = forms.ChoiceField(label="Expires after", choices=LIFETIMES, required=False)
    requests_per_minute = _number("Requests/min", "0 or empty: unlimited.")
    tokens_per_minute = _number("Tokens/min", "Prompt and completion tokens.")
    max_in_flight = _number("Concurrent requests", "Further requests are queued.")
    weight = forms.CharField(
        label="Weight",
        required=False,
        help_text="Share of capacity while several keys queue; default 1.",
    )
    budget_tokens = _number(
        "Token budget", "When exhausted, requests are rejected until the period ends."
    )
    budget_period = forms.ChoiceField(
        label="per (UTC)", choices=[(word, word) for word in PERIODS], required=False
    )
    models = forms.CharField(
        label="Allowed models",
        required=False,
        help_text="One per line. Empty: all models and adapters.",
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    pin = forms.BooleanField(label="Allow pinning requests to a worker", required=False)
    control = forms.BooleanField(label="Allow worker control paths, such as /sleep", required=False)

    def __init__(self, data: QueryDict | None = None, terms: KeyTerms | None = None) -> None:
        super().__init__(data, initial=_initial(terms or KeyTerms()))
        self.terms = terms
        if terms is not None:
            del self.fields["name"]
            end = terms.expires_at
            placeholder = f"unchanged: {end:%Y-%m-%d %H:%M} UTC" if end else "unchanged: no expiry"
            field = self.fields["expires_in_days"]
            if isinstance(field, forms.ChoiceField):
                field.choices = [(KEEP_CHOICE, placeholder), *LIFETIMES]

    def answer(self) -> dict[str, Any]:
        """Return the input of the actions; an empty number means the default."""
        self.full_clean()
        typed = {name: str(self.data.get(name, "")).strip() for name in self.fields}
        answers: dict[str, Any] = {name: typed[name] or 0 for name in _NUMBERS}
        if self.terms is None:
            answers["name"] = typed["name"]
        answers["weight"] = typed["weight"] or 1
        answers["budget_period"] = typed["budget_period"] or PERIODS[-1]
        lines = typed["models"].replace(",", "\n").splitlines()
        answers["models"] = [line.strip() for line in lines if line.strip()]
        answers["pin"], answers["control"] = "pin" in self.data, "control" in self.data
        if typed["expires_in_days"] != KEEP_CHOICE:
            answers["expires_in_days"] = typed["expires_in_days"] or None
        return answers


class GroupForm(ActionForm):
    name = forms.CharField(label="Name", required=False)
    description = forms.CharField(label="Description", required=False)
    endpoints = forms.MultipleChoiceField(
        label="Endpoints", required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(
        self, data: QueryDict | None, names: Iterable[str], group: KeyGroup | None = None
    ) -> None:
        initial: dict[str, Any] = {}
        if group is not None:
            members = [endpoint.name for endpoint in group.endpoints.all()]
            initial = {"name": group.name, "description": group.description, "endpoints": members}
        super().__init__(data, initial=initial)
        field = self.fields["endpoints"]
        if isinstance(field, forms.MultipleChoiceField):
            field.choices = [(name, name) for name in names]


def _initial(terms: KeyTerms) -> dict[str, Any]:
    initial: dict[str, Any] = {name: getattr(terms, name) or "" for name in _NUMBERS}
    initial |= {"weight": f"{terms.weight:g}", "budget_period": terms.budget_period}
    initial |= {"models": "\n".join(terms.models), "pin": terms.pin, "control": terms.control}
    initial["expires_in_days"] = "90"
    return initial
