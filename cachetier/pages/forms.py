"""The form of a cache tier, made from the one table of fields; sizes are typed in GiB.

Promises to judge nothing itself: what was typed goes to `actions`, refusals come back beside their
fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from cachetier.tier.spec import FIELDS, GIB, Effect, Problem, TierField, TierSpec
from console.web.forms import Styled

EFFECT_LABELS = {
    Effect.LIVE: "applies live",
    Effect.NODES: "restarts nodes",
    Effect.WORKERS: "restarts workers",
    Effect.FIXED: "cannot be changed",
}


class TierForm(Styled, forms.Form):
    """`spec` is the present one when a tier is changed; a new one has a name to give."""

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        spec: TierSpec | None = None,
        clusters: Iterable[str] = (),
    ) -> None:
        self.changing = spec is not None
        self.offered = [("", "This machine"), *((name, name) for name in sorted(clusters))]
        self.shown = [one for one in FIELDS if self._shows(one, spec)]
        shown = (spec or TierSpec()).to_dict()
        initial = {
            one.name: _gib(shown[one.name]) if _in_gib(one) else shown[one.name] for one in FIELDS
        }
        super().__init__(data, initial=initial)
        if not self.changing:
            self.fields["name"] = forms.CharField(
                label="Name",
                required=False,
                help_text="Endpoints name it under L2 cache, such as chat. It cannot be changed.",
                widget=forms.TextInput(attrs={"spellcheck": "false", "required": True}),
            )
        for one in self.shown:
            self.fields[one.name] = _field(one)
        if "cluster" in self.fields:
            self.fields["cluster"].widget = forms.Select(choices=self.offered)

    def _shows(self, one: TierField, spec: TierSpec | None) -> bool:
        """What is for clusters, where there is one; what is fixed, while it can still be said."""
        if one.on_cluster:
            return len(self.offered) > 1 if spec is None else bool(spec.cluster)
        return not one.text or (spec is None and len(self.offered) > 1)

    def rows(self) -> list[dict[str, Any]]:
        """The fields in their order, each with what changing it does."""
        effects = {one.name: EFFECT_LABELS[one.effect] for one in self.shown}
        return [
            {
                "field": self[name],
                "effect": effects.get(name, "") if self.changing else "",
                "live_id": f"live-{name}",
            }
            for name in (*(() if self.changing else ("name",)), *effects)
        ]

    def typed(self) -> dict[str, Any]:
        """In the shape that `actions` takes; as typed when it cannot be read. What is empty is
        left out."""
        found: dict[str, Any] = {}
        for one in self.shown:
            text = str(self.data.get(one.name, "")).strip()
            if text:
                found[one.name] = _read(one, text)
        return found

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Put refusals beside their fields, those of no field above all."""
        self.full_clean()
        for problem in problems:
            known = problem.field in self.fields
            self.add_error(problem.field if known else None, f"{problem.message} {problem.remedy}")


def shown_value(name: str, value: Any) -> str:
    """As people read it; sizes in GiB."""
    return f"{value / GIB:g} GiB" if name.endswith("_bytes") else str(value) or "–"


def _gib(size: int) -> str:
    """To the byte: sending it back changes nothing."""
    return f"{size / GIB:.15g}"


def _in_gib(one: TierField) -> bool:
    return one.name.endswith("_bytes")


def _field(one: TierField) -> forms.Field:
    label = f"{one.label}, GiB" if _in_gib(one) else one.label
    if one.choices:
        widget: forms.Widget = forms.Select(choices=[(name, name) for name in one.choices])
    elif one.text:
        widget = forms.TextInput(attrs={"spellcheck": "false"})
    else:
        step = "any" if _in_gib(one) else "1"
        widget = forms.NumberInput(attrs={"step": step, "min": "0", "inputmode": "decimal"})
    return forms.CharField(label=label, help_text=one.help, required=False, widget=widget)


def _read(one: TierField, text: str) -> Any:
    if one.choices or one.text:
        return text
    try:
        return round(float(text) * GIB) if _in_gib(one) else int(text)
    except (ValueError, OverflowError):
        return text
