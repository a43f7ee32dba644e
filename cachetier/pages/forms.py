"""Cache tier form, generated from the spec fields; sizes are entered in GiB.

`actions` validates the input; its errors are shown at their fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from cachetier.tier.spec import FIELDS, GIB, Effect, TierField, TierSpec
from console.web.forms import ActionForm

EFFECT_LABELS = {
    Effect.LIVE: "applies live",
    Effect.NODES: "restarts nodes",
    Effect.WORKERS: "restarts workers",
    Effect.FIXED: "cannot be changed",
}


class TierForm(ActionForm):
    """Form for a new tier, or for `spec` of an existing one; `filled`: inputs from a link."""

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        spec: TierSpec | None = None,
        clusters: Iterable[str] = (),
        filled: Mapping[str, str] | None = None,
    ) -> None:
        self.changing = spec is not None
        self.offered = [("", "This machine"), *((name, name) for name in sorted(clusters))]
        self.shown = [field for field in FIELDS if self._shows(field, spec)]
        values = (spec or TierSpec()).to_dict()
        initial = {
            field.name: _format_gib(values[field.name]) if _is_in_gib(field) else values[field.name]
            for field in FIELDS
        }
        names = {field.name for field in self.shown}
        self.filled = {name: text[:40] for name, text in (filled or {}).items() if name in names}
        super().__init__(data, initial=initial | self.filled)
        if not self.changing:
            self.fields["name"] = forms.CharField(
                label="Name",
                required=False,
                help_text="Used in the L2 cache settings of endpoints. Cannot be changed.",
                widget=forms.TextInput(attrs={"spellcheck": "false", "required": True}),
            )
        for field in self.shown:
            self.fields[field.name] = _make_field(field)
        if "cluster" in self.fields:
            self.fields["cluster"].widget = forms.Select(choices=self.offered)

    def _shows(self, one: TierField, spec: TierSpec | None) -> bool:
        """Return whether to show the field: some need a cluster, fixed ones a new tier."""
        if one.on_cluster:
            return len(self.offered) > 1 if spec is None else bool(spec.cluster)
        return not one.text or (spec is None and len(self.offered) > 1)

    def rows(self) -> list[dict[str, Any]]:
        """Return the fields in order, each with the effect of a change."""
        effects = {field.name: EFFECT_LABELS[field.effect] for field in self.shown}
        return [
            {
                "field": self[name],
                "effect": effects.get(name, "") if self.changing else "",
                "live_id": f"live-{name}",
            }
            for name in (*(() if self.changing else ("name",)), *effects)
        ]

    def typed(self) -> dict[str, Any]:
        """Return the input for `actions`: unparsable values as entered, empty ones omitted."""
        values: dict[str, Any] = {}
        for field in self.shown:
            text = str(self.data.get(field.name, "")).strip()
            if text:
                values[field.name] = _parse_value(field, text)
        return values


def format_value(name: str, value: Any) -> str:
    """Format a value for display; sizes in GiB."""
    return f"{value / GIB:g} GiB" if name.endswith("_bytes") else str(value) or "–"


def _format_gib(size: int) -> str:
    """Format without rounding: submitting an unchanged form changes nothing."""
    return f"{size / GIB:.15g}"


def _is_in_gib(one: TierField) -> bool:
    return one.name.endswith("_bytes")


def _make_field(one: TierField) -> forms.Field:
    label = f"{one.label} (GiB)" if _is_in_gib(one) else one.label
    if one.choices:
        widget: forms.Widget = forms.Select(choices=[(name, name) for name in one.choices])
    elif one.text:
        widget = forms.TextInput(attrs={"spellcheck": "false"})
    else:
        step = "any" if _is_in_gib(one) else "1"
        widget = forms.NumberInput(attrs={"step": step, "min": "0", "inputmode": "decimal"})
    return forms.CharField(label=label, help_text=one.help, required=False, widget=widget)


def _parse_value(one: TierField, text: str) -> Any:
    if one.choices or one.text:
        return text
    try:
        return round(float(text) * GIB) if _is_in_gib(one) else int(text)
    except (ValueError, OverflowError):
        return text
