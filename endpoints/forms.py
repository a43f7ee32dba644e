"""The forms of an endpoint, made from the one table of fields.

Promises to judge nothing itself: what was typed is read into a field's type where that can be done
and handed to `actions`; refusals come back as the same objects which the API answers with, and
are put beside their fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django import forms
from django.forms.boundfield import BoundField

from console.web.forms import Styled
from endpoints.spec import FieldError, flatten, nest
from endpoints.spec_fields import BACKENDS, ENGINES, FIELDS, POLICIES, STRATEGIES, Effect, SpecField


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the form; `switch` names the checkbox which turns its other fields on."""

    title: str
    text: str
    paths: tuple[str, ...]
    switch: str = ""


SECTIONS = (
    Section(
        "Model",
        "What is served, and by how many workers.",
        ("name", "model", "engine", "replicas"),
    ),
    Section(
        "L1 cache",
        "In each worker's memory: what one request computed is found by the next one there.",
        ("cache.l1.enabled", "cache.l1.size_gib", "cache.l1.policy", "cache.l1.chunk_tokens"),
        "cache.l1.enabled",
    ),
    Section(
        "L2 cache",
        "Shared by all workers: what one computed is found by the others. Filled through L1.",
        (
            "cache.l2.enabled",
            "cache.l2.backend",
            "cache.l2.tier",
            "cache.l2.url",
            "cache.l2.password_file",
            "cache.l2.ttl_s",
        ),
        "cache.l2.enabled",
    ),
    Section(
        "Routing",
        "How the router picks a worker for a request.",
        ("routing.enabled", "routing.strategy", "routing.session_key"),
        "routing.enabled",
    ),
    Section(
        "Resources and arguments",
        "What each worker may take, and what else it is told.",
        ("resources.cpus", "resources.memory_gib", "resources.gpus", "worker_args"),
    ),
)
SHOWN = tuple(f for f in FIELDS if any(f.path in section.paths for section in SECTIONS))
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
}


class EndpointForm(Styled, forms.Form):
    """`spec` is the present spec when an endpoint is changed; `models` and cache
    `tiers` are offered as lists."""

    def __init__(
        self,
        data: Mapping[str, Any] | None = None,
        *,
        spec: Mapping[str, Any] | None = None,
        models: Iterable[str] = (),
        tiers: Iterable[str] = (),
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self.changing = spec is not None
        self.models = tuple(models)
        self.tiers = tuple(tiers)
        initial = {f.path: f.default for f in FIELDS} | dict(defaults or {})
        self.present = flatten(spec) if spec is not None else {}
        initial |= self.present
        if spec is None and self.models:
            initial["model"] = self.models[0]
        initial["worker_args"] = "\n".join(initial["worker_args"])
        super().__init__(data, initial=initial)
        for spec_field in SHOWN:
            self.fields[spec_field.path] = self._field(spec_field)

    def _field(self, spec_field: SpecField) -> forms.Field:
        facts: dict[str, Any] = {
            "label": spec_field.label,
            "help_text": spec_field.help,
            "required": False,
        }
        if spec_field.kind is bool:
            return forms.BooleanField(**facts)
        field = forms.CharField(widget=_widget(spec_field), strip=True, **facts)
        field.widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}
        if spec_field.default is None:
            field.widget.attrs["required"] = True
        if spec_field.path == "name" and self.changing:
            field.widget.attrs["readonly"] = True
        if spec_field.path == "model" and self.models:
            field.widget.attrs["list"] = "known-models"
        if spec_field.path == "cache.l2.tier":
            field.widget.attrs["list"] = "known-tiers"
        return field

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
            for section in SECTIONS
        ]

    def _shown(self, path: str) -> dict[str, Any]:
        bound: BoundField = self[path]
        wide = path in ("worker_args", "cache.l2.url", "routing.strategy")
        return {"field": bound, "effect": self._effect(path), "wide": wide}

    def _effect(self, path: str) -> str:
        return EFFECT_LABELS[_BY_PATH[path].effect] if self.changing else ""

    def spec_data(self) -> dict[str, Any]:
        """What was typed, in the shape that `actions` takes. What is empty or absent gets its
        default, except texts that may be empty. What the form does not show stays as it is."""
        flat = {path: value for path, value in self.present.items() if path not in self.fields}
        for spec_field in SHOWN:
            path = spec_field.path
            if spec_field.kind is bool:
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
_CHOICES = {
    "engine": ENGINES,
    "cache.l1.policy": POLICIES,
    "cache.l2.backend": BACKENDS,
    "routing.strategy": STRATEGIES,
}


def _widget(spec_field: SpecField) -> forms.Widget:
    if spec_field.path in _CHOICES:
        options = [(value, _CHOICE_LABELS.get(value, value)) for value in spec_field.choices]
        return forms.Select(choices=options)
    if spec_field.kind is tuple:
        return forms.Textarea(attrs={"rows": 3, "placeholder": "--max-model-len=2048"})
    if spec_field.kind in (int, float):
        step = "1" if spec_field.kind is int else "any"
        return forms.NumberInput(attrs={"step": step, "inputmode": "decimal"})
    return forms.TextInput()


def _read(spec_field: SpecField, typed: str) -> Any:
    """In the field's type; as typed when it cannot be read, for the spec to refuse."""
    if spec_field.kind is tuple:
        return [line.strip() for line in typed.splitlines() if line.strip()]
    if spec_field.kind is str:
        return typed
    try:
        return int(typed) if spec_field.kind is int else float(typed)
    except ValueError:
        return typed


def _whole(error: FieldError) -> str:
    return (
        f"{error.field}: {error.message} {error.remedy}"
        if error.field
        else (f"{error.message} {error.remedy}")
    )
