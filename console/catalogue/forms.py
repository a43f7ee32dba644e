"""Form of an instance type; `rules` validates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from console.catalogue.core.rules import FIELDS
from console.web.forms import ActionForm

LABELS = {
    "vcpus": "vCPUs",
    "memory_gib": "Memory (GiB)",
    "gpu": "GPU",
    "gpus": "GPUs",
    "gpu_memory_gib": "Memory per GPU (GiB)",
    "price_usd_hour": "Price (USD/h)",
    "price_date": "Valid from",
    "price_source": "Price source",
}
_TEXTS = ("gpu", "price_source", "price_date")


class InstanceForm(ActionForm):
    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        name: str = "",
        shown: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(data, initial={"name": name, **(shown or {})})
        self.fields["name"] = forms.CharField(
            label="Name",
            required=False,
            disabled=bool(name),
            help_text="Value of the node label node.kubernetes.io/instance-type.",
        )
        for field, text in FIELDS.items():
            self.fields[field] = forms.CharField(
                label=LABELS[field], required=False, help_text=text, widget=_widget(field)
            )

    def typed(self) -> dict[str, Any]:
        """Return the input of `actions.save`: numbers where they parse, else the text."""
        found: dict[str, Any] = {}
        for field in FIELDS:
            text = str(self.data.get(field, "")).strip()
            if field in _TEXTS:
                found[field] = text or None
            elif field == "price_usd_hour":
                found[field] = _number(text) if text else None
            else:
                found[field] = _number(text or "0")
        return found


def _widget(field: str) -> forms.Widget:
    if field == "price_date":
        return forms.DateInput(attrs={"type": "date"})
    return forms.TextInput() if field in _TEXTS else forms.TextInput({"inputmode": "decimal"})


def _number(text: str) -> Any:
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else value
