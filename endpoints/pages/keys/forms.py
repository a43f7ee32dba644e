"""Forms of inference keys and key groups; `keys.bodies` validates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from django import forms
from django.http import QueryDict

from console.web.serializer_form import SerializerForm
from endpoints.keys.bodies import KeyChangeSerializer, WantedGroupSerializer, WantedKeySerializer
from endpoints.keys.terms import NO_TERMS, PERIODS, KeyTerms
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
_NAMES = ("expires_in_days", *_NUMBERS, "weight", "budget_period", "models", "pin", "control")


class KeyForm(SerializerForm):
    """Form of a key: a new one, or one with these `terms`."""

    def __init__(self, data: QueryDict | None = None, terms: KeyTerms | None = None) -> None:
        serializer = KeyChangeSerializer() if terms else WantedKeySerializer()
        values = {
            name: "" if value == 0 and name in _NUMBERS else value
            for name, value in (terms or NO_TERMS).to_dict().items()
        }
        super().__init__(serializer, data, values, _NAMES if terms else ("name", *_NAMES))
        lifetimes = list(LIFETIMES)
        if terms is not None:
            end = terms.expires_at
            unchanged = f"unchanged: {end:%Y-%m-%d %H:%M} UTC" if end else "unchanged: no expiry"
            lifetimes.insert(0, (KEEP_CHOICE, unchanged))
        self.fields["expires_in_days"] = forms.ChoiceField(
            label="Expires after",
            choices=lifetimes,
            initial=KEEP_CHOICE if terms else "90",
            required=False,
        )

    def typed(self) -> dict[str, Any]:
        """Return the values; an empty number means the default."""
        typed = super().typed()
        lines = typed["models"].replace(",", "\n").splitlines()
        values = {
            **typed,
            **{name: typed[name] or 0 for name in _NUMBERS},
            "weight": typed["weight"] or 1,
            "budget_period": typed["budget_period"] or PERIODS[-1],
            "models": [line.strip() for line in lines if line.strip()],
            "expires_in_days": typed["expires_in_days"] or None,
        }
        if typed["expires_in_days"] == KEEP_CHOICE:
            del values["expires_in_days"]
        return values


class GroupForm(SerializerForm):
    def __init__(
        self, data: QueryDict | None, names: Iterable[str], group: KeyGroup | None = None
    ) -> None:
        values: dict[str, Any] = {}
        if group is not None:
            values = {"name": group.name, "description": group.description}
        super().__init__(WantedGroupSerializer(), data, values)
        self.fields["endpoints"] = forms.MultipleChoiceField(
            label="Endpoints",
            choices=[(name, name) for name in names],
            initial=[endpoint.name for endpoint in group.endpoints.all()] if group else [],
            required=False,
            widget=forms.CheckboxSelectMultiple({"class": "form-check-input"}),
        )

    def typed(self) -> dict[str, Any]:
        data: Any = self.data
        return {**super().typed(), "endpoints": data.getlist("endpoints")}
