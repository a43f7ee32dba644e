"""The forms of an endpoint, made from the one table of fields.

Promises to judge nothing itself: what was typed is read into a field's type where that can be done
and handed to `actions`; refusals come back as the same objects which the API answers with, and
are put beside their fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from django import forms
from django.forms.boundfield import BoundField

from console.web.forms import Styled
from endpoints.form_sections import declined, sections
from endpoints.spec import FieldError, flatten, nest
from endpoints.spec_cluster_fields import CLUSTER_FIELDS
from endpoints.spec_cluster_rules import ClusterFacts
from endpoints.spec_fields import FIELDS, Effect, SpecField
from endpoints.spec_rules import Context

MARK = "on_cluster"
"""A hidden field which says that the sections for clusters were in the page that is sent."""
EFFECT_LABELS = {
    Effect.FIXED: "cannot be changed",
    Effect.RESTART: "restarts workers",
    Effect.LIVE: "applies live",
}
_CHOICE_LABELS = {
    "tieredstorage": "tieredstorage: Emberline's cache tier",
    "redis": "redis: a Redis or Valkey of yours",
    "prefixaware": "prefixaware: the worker that knows most of the prompt",
    "session": "session: one worker for each session",
    "roundrobin": "roundrobin: in turn",
    "lru": "lru: drop what was used longest ago",
    "arc": "arc: also keep what is used often",
    "vllm": "vllm",
    "simulated": "simulated: no model computes",
    "": "as the model says",
    "huggingface": "huggingface: downloaded before the worker starts",
    "s3": "s3: a bucket, mounted",
    "fsx": "fsx: FSx for Lustre, mounted",
    "pvc": "pvc: a volume claim of the namespace",
    "none": "none",
    "ingress": "ingress",
    "gateway": "gateway: Gateway API",
    "loadbalancer": "loadbalancer: a Service of its own",
    "secret": "secret: a Secret of the namespace",
    "cert-manager": "cert-manager: made and renewed by an issuer",
}
_WIDE = frozenset(
    {"worker_args", "cache.l2.url", "routing.strategy", "scaling.triggers", "source.type"}
)


# Another cluster offers other fields: the form is drawn anew with what is typed, by POST, since
# what is typed does not belong into an address.
_ASK_AGAIN = {
    "hx-post": "?drawn=anew",
    "hx-include": "closest form",
    "hx-target": "#endpoint-form",
    "hx-select": "#endpoint-form",
    "hx-swap": "outerHTML",
}


class EndpointForm(Styled, forms.Form):
    """`spec` is the present spec when an endpoint is changed; what can be chosen comes from
    `context`. Fields for clusters are there once a cluster is chosen."""

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        spec: Mapping[str, Any] | None = None,
        context: Context | None = None,
    ) -> None:
        self.changing = spec is not None
        self.models = sorted(context.models) if context else []
        self.tiers = sorted(context.tiers) if context else []
        self.clusters = sorted(context.clusters) if context else []
        initial = {f.path: f.default for f in FIELDS}
        self.present = flatten(spec) if spec is not None else {}
        initial |= dict(context.defaults) if context and spec is None else self.present
        if spec is None and self.models:
            initial["model"] = self.models[0]
        chosen = (data or {}).get("placement.cluster", initial["placement.cluster"])
        self.cluster: ClusterFacts | None = None
        if chosen and context:
            self.cluster = context.cluster(str(chosen))
        self.parts = sections(place=bool(self.clusters), cluster=self.cluster)
        self.shown = [f for f in FIELDS if any(f.path in part.paths for part in self.parts)]
        initial = {f.path: _written(f, initial[f.path]) for f in FIELDS}
        super().__init__(data, initial=initial)
        for spec_field in self.shown:
            self.fields[spec_field.path] = self._field(spec_field)

    def _field(self, spec_field: SpecField) -> forms.Field:
        facts: dict[str, Any] = {
            "label": spec_field.label,
            "help_text": spec_field.help,
            "required": False,
        }
        if spec_field.kind is bool:
            return forms.BooleanField(**facts)
        missing = declined(spec_field.path, self.cluster)
        if missing:
            facts["help_text"] += _missing(missing)
        field = forms.CharField(widget=self._widget(spec_field, missing), strip=True, **facts)
        field.widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}
        if spec_field.default is None:
            field.widget.attrs["required"] = True
        if spec_field.path == "name" and self.changing:
            field.widget.attrs["readonly"] = True
        if spec_field.path == "model" and self.models:
            field.widget.attrs["list"] = "known-models"
        if spec_field.path == "cache.l2.tier":
            field.widget.attrs["list"] = "known-tiers"
        if spec_field.path.startswith("placement.") and spec_field.effect is Effect.FIXED:
            # A list that is not sent at all leaves the endpoint where it is.
            word = "disabled" if spec_field.path == "placement.cluster" else "readonly"
            field.widget.attrs |= {word: True} if self.changing else {}
        return field

    def _widget(self, spec_field: SpecField, missing: Mapping[str, str]) -> forms.Widget:
        if spec_field.path == "placement.cluster":
            options = [("", "This machine"), *((name, name) for name in self.clusters)]
            return forms.Select(choices=options, attrs={} if self.changing else _ASK_AGAIN)
        if spec_field.choices:
            options = [(value, _CHOICE_LABELS.get(value, value)) for value in spec_field.choices]
            return _Offered(missing, choices=options)
        if "" in missing:
            return _widget(spec_field, disabled=True)
        return _widget(spec_field)

    def sections(self) -> list[dict[str, Any]]:
        """The parts of the page: each its fields with what a change of them does."""
        return [
            {
                "title": section.title,
                "text": section.text,
                "switch": self[section.switch] if section.switch else None,
                "fields": [self._shown(path) for path in section.paths if path != section.switch],
                "effect": self._effect(section.switch) if section.switch else "",
            }
            for section in self.parts
        ]

    def _shown(self, path: str) -> dict[str, Any]:
        bound: BoundField = self[path]
        ticked = _BY_PATH[path].kind is bool
        shown = {"field": bound, "effect": self._effect(path), "ticked": ticked}
        return {**shown, "wide": path in _WIDE}

    def _effect(self, path: str) -> str:
        return EFFECT_LABELS[_BY_PATH[path].effect] if self.changing else ""

    def spec_data(self) -> dict[str, Any]:
        """What was typed, in the shape that `actions` takes. What is empty or absent gets its
        default, except texts that may be empty. What the form does not show stays as it is."""
        flat = {path: value for path, value in self.present.items() if path not in self.fields}
        # A box that was not in the page was not unticked.
        seen = MARK in self.data
        for spec_field in self.shown:
            path = spec_field.path
            if spec_field.kind is bool:
                if spec_field in CLUSTER_FIELDS and not seen:
                    continue
                flat[path] = path in self.data
                continue
            if path not in self.data:
                continue
            typed = str(self.data[path]).strip()
            if typed == "" and spec_field.kind is not str and spec_field.kind is not tuple:
                continue
            if typed == "" and spec_field.choices:
                continue
            flat[path] = _read(spec_field, typed)
        return nest(flat)

    def refuse(self, errors: Iterable[FieldError]) -> None:
        """Put refusals beside their fields, those of no field above all."""
        self.full_clean()
        for error in errors:
            text = f"{error.message} {error.remedy}"
            known = error.field in self.fields
            self.add_error(error.field if known else None, text if known else _whole(error))


class KeyForm(Styled, forms.Form):
    name = forms.CharField(
        label="Name of the key", required=False, help_text="Such as the program that will use it."
    )


class PromptForm(Styled, forms.Form):
    """What to send through the router; bounds keep one page from holding a worker for long."""

    prompt = forms.CharField(
        label="Prompt",
        max_length=200_000,
        widget=forms.Textarea(attrs={"rows": 4, "placeholder": "Write something long, twice."}),
    )
    max_tokens = forms.IntegerField(
        label="Tokens to answer", min_value=1, max_value=512, initial=32
    )
    worker = forms.CharField(label="Worker", required=False)


_BY_PATH = {spec_field.path: spec_field for spec_field in FIELDS}


class _Offered(forms.Select):
    """Choices of which some cannot be made, shown all the same."""

    def __init__(self, missing: Mapping[str, str], **facts: Any) -> None:
        super().__init__(**facts)
        self.missing = missing

    def create_option(self, name: str, value: Any, *args: Any, **facts: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **facts)
        if str(value) in self.missing:
            option["attrs"]["disabled"] = True
        return option


def _missing(why: Mapping[str, str]) -> str:
    return "".join(
        f" Not here{f': {choice}' if choice else ''}. {text}" for choice, text in why.items()
    )


def _widget(spec_field: SpecField, **more: Any) -> forms.Widget:
    if spec_field.kind in (tuple, dict, list):
        shape = _SHAPES.get(spec_field.path, "" if spec_field.kind is tuple else "YAML")
        return forms.Textarea(attrs={"rows": 3, "placeholder": shape, **more})
    if spec_field.kind in (int, float):
        step = "1" if spec_field.kind is int else "any"
        return forms.NumberInput(attrs={"step": step, "inputmode": "decimal", **more})
    return forms.TextInput(attrs=more)


_SHAPES = {
    "worker_args": "--max-model-len=2048",
    "placement.instance_types": "ml.g5.8xlarge",
    "placement.node_selector": "pool: inference",
    "pod.env": "NAME: value",
    "tags": "team: search",
    "scaling.triggers": "- type: prometheus\n  metadata: {query: ..., threshold: '10'}",
}


def _written(spec_field: SpecField, value: Any) -> Any:
    """As a person types it."""
    if spec_field.kind is tuple:
        return "\n".join(value)
    if spec_field.kind in (dict, list):
        return yaml.safe_dump(value, sort_keys=False).rstrip() if value else ""
    return value


def _read(spec_field: SpecField, typed: str) -> Any:
    """In the field's type; as typed when it cannot be read, for the spec to refuse."""
    if spec_field.kind is tuple:
        return [line.strip() for line in typed.splitlines() if line.strip()]
    if spec_field.kind is str:
        return typed
    try:
        if spec_field.kind in (dict, list):
            return yaml.safe_load(typed)
        return int(typed) if spec_field.kind is int else float(typed)
    except (ValueError, yaml.YAMLError):
        return typed


def _whole(error: FieldError) -> str:
    return (
        f"{error.field}: {error.message} {error.remedy}"
        if error.field
        else (f"{error.message} {error.remedy}")
    )
