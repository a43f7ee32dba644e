"""Forms of an endpoint, built from the field table.

Input is parsed and passed to `actions`, which validates; its errors are shown at their fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.urls import reverse

from console.core.errors import Problem
from console.web.forms import Styled
from endpoints.pages.editor.form_fields import (
    CARRIED_MARK,
    MARK,
    WIDE,
    format_value,
    missing_text,
    parse_value,
    required_choice,
    to_form_data,
    widget,
)
from endpoints.pages.editor.form_sections import (
    FormSection,
    groups,
    summarize_group,
    unsupported_choices,
)
from endpoints.pages.editor.presets import Preset
from endpoints.spec.cluster_rules import ClusterFacts
from endpoints.spec.endpoint_spec import EndpointSpec, flatten, nest
from endpoints.spec.endpoint_spec import read as read_spec
from endpoints.spec.field import Effect, SpecField
from endpoints.spec.fields import BY_PATH, CLUSTER_FIELDS, FIELDS
from endpoints.spec.rules import Context

# A cluster offers other fields, so the form is redrawn with its input, by POST to keep the input
# out of the URL.
_ASK_AGAIN = {
    "hx-post": "?drawn=anew",
    "hx-include": "closest form",
    "hx-target": "#endpoint-form",
    "hx-select": "#endpoint-form",
    "hx-swap": "outerHTML",
}


class EndpointForm(Styled, forms.Form):
    """Form of an endpoint. `spec`: initial values, of the edited endpoint or of the cloned one
    (`changing` False). Options come from `context`. Cluster fields are present once a cluster is
    selected.
    """

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        spec: Mapping[str, Any] | None = None,
        context: Context | None = None,
        changing: bool | None = None,
        start: Preset | None = None,
    ) -> None:
        self.changing = spec is not None if changing is None else changing
        self.start = start
        self.models = sorted(context.models) if context else []
        self.tiers = sorted(context.tiers) if context else []
        self.clusters = sorted(context.clusters) if context else []
        self.present = flatten(spec) if spec is not None else {}
        self.usual = _default_values(context)
        initial = self.usual | self.present
        if spec is None and self.models:
            initial["model"] = self.models[0]
        chosen = (data or {}).get("placement.cluster", initial["placement.cluster"])
        self.cluster: ClusterFacts | None = None
        if chosen and context:
            self.cluster = context.cluster(str(chosen))
        self.parts = groups(place=bool(self.clusters), cluster=self.cluster)
        paths = {path for part in self.parts for section in part.sections for path in section.paths}
        self.shown = [f for f in FIELDS if f.path in paths]
        self.begun = initial
        super().__init__(data, initial={f.path: format_value(f, initial[f.path]) for f in FIELDS})
        for spec_field in self.shown:
            self.fields[spec_field.path] = self._field(spec_field)

    @classmethod
    def holding(
        cls, flat: Mapping[str, Any], sent: Mapping[str, Any], **facts: Any
    ) -> EndpointForm:
        """Return a form with these values. Other input in `sent` (note, hidden fields) is kept."""
        held = cls(to_form_data(flat), **facts).fields
        others = {name: value for name, value in sent.items() if name not in held}
        return cls(
            {**others, **to_form_data({p: v for p, v in flat.items() if p in held})}, **facts
        )

    def _field(self, spec_field: SpecField) -> forms.Field:
        keywords: dict[str, Any] = {
            "label": spec_field.label,
            "help_text": spec_field.help,
            "required": False,
        }
        if spec_field.kind is bool:
            return forms.BooleanField(**keywords)
        missing = unsupported_choices(spec_field.path, self.cluster)
        if missing:
            keywords["help_text"] += missing_text(missing)
        field = forms.CharField(widget=self._widget(spec_field, missing), strip=True, **keywords)
        field.widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}
        if spec_field.default is None:
            field.widget.attrs["required"] = True
        if spec_field.path == "name" and self.changing:
            field.widget.attrs["readonly"] = True
        if spec_field.path == "model":
            field.widget.attrs |= _model_combobox()
        if spec_field.path == "cache.l2.tier":
            field.widget.attrs["list"] = "known-tiers"
        if spec_field.path.startswith("placement.") and spec_field.effect is Effect.FIXED:
            # A disabled select is not submitted, which keeps the placement.
            word = "disabled" if spec_field.path == "placement.cluster" else "readonly"
            field.widget.attrs |= {word: True} if self.changing else {}
        return field

    def _widget(self, spec_field: SpecField, missing: Mapping[str, str]) -> forms.Widget:
        if spec_field.path == "placement.cluster":
            options = [("", "This machine"), *((name, name) for name in self.clusters)]
            return forms.Select(choices=options, attrs={} if self.changing else _ASK_AGAIN)
        return widget(spec_field, missing)

    def groups(self) -> list[dict[str, Any]]:
        values = self.flat()
        section_groups = []
        for group, summary in zip(self.parts, self.summaries(), strict=True):
            wrong = sum(1 for path in summary["paths"] if self.errors.get(path))
            differs = any(not self._as_usual(path, values) for path in summary["paths"])
            sections = [self._section(section, values) for section in group.sections]
            opened = bool(wrong) or differs
            section_groups.append(
                {**summary, "group": group, "open": opened, "wrong": wrong, "sections": sections}
            )
        return section_groups

    def summaries(self) -> list[dict[str, Any]]:
        spec = self.spec()
        return [
            {
                "key": group.key,
                "summary": summarize_group(group.key, spec),
                "paths": {path for section in group.sections for path in section.paths},
            }
            for group in self.parts
        ]

    def sections(self) -> list[dict[str, Any]]:
        return [section for group in self.groups() for section in group["sections"]]

    def _as_usual(self, path: str, values: Mapping[str, Any]) -> bool:
        usual = self.usual.get(path)
        return bool(format_value(BY_PATH[path], values[path]) == format_value(BY_PATH[path], usual))

    def _section(self, section: FormSection, values: Mapping[str, Any]) -> dict[str, Any]:
        others = [path for path in section.paths if path != section.switch]
        return {
            "title": section.title,
            "text": section.text,
            "switch": self[section.switch] if section.switch else None,
            "switch_item": self._shown(section.switch, values) if section.switch else None,
            "fields": [self._shown(path, values) for path in others],
            "effect": self._effect(section.switch) if section.switch else "",
        }

    def _shown(self, path: str, values: Mapping[str, Any]) -> dict[str, Any]:
        bound: BoundField = self[path]
        on, only = required_choice(path)
        return {
            "field": bound,
            "live_id": live_id(path),
            "effect": self._effect(path),
            "ticked": BY_PATH[path].kind is bool,
            "wide": path in WIDE,
            "on": on,
            "only": " ".join(name or "-" for name in only),
            "usual": self._as_usual(path, values),
            "combobox": path == "model",
            "previewed": path == "routing.cache_isolation" and self.changing,
            "stamped": path == "source.weights_version" and self.changing,
            "why": self._why(path, values),
        }

    def _why(self, path: str, values: Mapping[str, Any]) -> str:
        """Return the preset's reason while its value is unchanged."""
        for reason in self.start.here(cluster=self.cluster is not None) if self.start else ():
            same = format_value(BY_PATH[path], reason.value) == format_value(
                BY_PATH[path], values[path]
            )
            if reason.path == path and same:
                return reason.why
        return ""

    def _effect(self, path: str) -> str:
        return BY_PATH[path].effect.label if self.changing else ""

    def flat(self) -> dict[str, Any]:
        if not self.is_bound:
            return dict(self.begun)
        return {**self.usual, **flatten(self.spec_data())}

    def spec(self) -> EndpointSpec:
        return read_spec(nest(self.flat()))[0]

    def spec_data(self) -> dict[str, Any]:
        """Return the input of `actions`. Empty fields get their defaults, unless the text may be
        empty; an emptied number is no number, and rejected. Fields not submitted or not shown keep
        their values.
        """
        flat = {path: value for path, value in self.present.items() if path not in self.fields}
        # A checkbox missing from the page was not unticked.
        is_marked = MARK in self.data or CARRIED_MARK in self.data
        for spec_field in self.shown:
            path = spec_field.path
            if spec_field.kind is bool:
                if spec_field in CLUSTER_FIELDS and not is_marked:
                    continue
                flat[path] = path in self.data
                continue
            if path not in self.data:
                flat |= {path: self.present[path]} if path in self.present else {}
                continue
            typed = str(self.data[path]).strip()
            emptied = spec_field.kind in (int, float) and self.initial[path] != ""
            if typed == "" and not emptied and not _may_be_empty(spec_field):
                continue
            flat[path] = parse_value(spec_field, typed)
        return nest(flat)

    def set_aside(self) -> list[tuple[str, str]]:
        """Return the input of hidden fields: unused, but kept."""
        if not self.is_bound or self.cluster is not None:
            return []
        if MARK not in self.data and CARRIED_MARK not in self.data:
            return []
        held = [f.path for f in FIELDS if f.path not in self.fields and f.path in self.data]
        return [(CARRIED_MARK, "1"), *((path, str(self.data[path])) for path in held)]

    def refuse(self, errors: Iterable[Problem]) -> None:
        self.full_clean()
        for error in errors:
            text = f"{error.message} {error.remedy}"
            if error.field in self.fields:
                self.add_error(error.field, text)
            else:
                self.add_error(None, f"{error.field}: {text}" if error.field else text)


def _model_combobox() -> dict[str, str]:
    """Return the attributes of the model field: options are loaded by htmx, keys are in
    combobox.js. The data list serves browsers without script.
    """
    return {
        "list": "known-models",
        "role": "combobox",
        "aria-autocomplete": "list",
        "aria-expanded": "false",
        "aria-controls": "model-options",
        "data-combobox": "model-options",
        "hx-get": reverse("endpoints:model-options"),
        "hx-include": "closest form",
        "hx-params": "model,placement.cluster",
        "hx-target": "#model-options",
        "hx-trigger": "focus, input changed delay:200ms",
        "hx-sync": "this:replace",
    }


def live_id(path: str) -> str:
    return f"live-{path.replace('.', '-')}"


class PromptForm(Styled, forms.Form):
    """Prompt through the router; limits bound the time that a page can occupy a worker."""

    prompt = forms.CharField(
        label="Prompt",
        max_length=200_000,
        widget=forms.Textarea(
            attrs={
                "rows": 4,
                "placeholder": "A prompt of 100 tokens or more shows the effect of the cache.",
            }
        ),
    )
    max_tokens = forms.IntegerField(
        label="Max output tokens", min_value=1, max_value=512, initial=32
    )
    worker = forms.CharField(label="Worker", required=False)


def _default_values(context: Context | None) -> dict[str, Any]:
    plain = {f.path: "" if f.default is None else f.default for f in FIELDS}
    return plain | (dict(context.defaults) if context else {})


def _may_be_empty(spec_field: SpecField) -> bool:
    """Return whether empty input is a value."""
    text = spec_field.kind in (str, tuple) and not spec_field.choices
    return text and spec_field.default is not None
