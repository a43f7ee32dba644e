"""Widgets, labels and text conversion of the endpoint form's fields.

Formatting and parsing round-trip. Unreadable input is passed on unchanged and rejected by the spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from django import forms

from console.core import yaml_reader
from endpoints.spec.cluster_rules import SOURCE_NEEDS, SOURCE_TAKES
from endpoints.spec.field import SpecField
from endpoints.spec.fields import BY_PATH, FIELDS
from routing.engine.strategies import STRATEGY_CHOICES

MAX_CHARACTERS = 100_000
"""Limit of a YAML field; a form has many and parses each several times."""
MARK = "on_cluster"
"""Hidden field: the submitted page contained the cluster sections."""
CARRIED_MARK = "set_aside"
"""Hidden field: the submitted page carried the cluster values without showing them."""
WIDE = frozenset(
    {
        "model",
        "engine",
        "worker_args",
        "cache.l2.url",
        "router.state_store.url",
        "routing.strategy",
        "scaling.triggers",
        "source.type",
        "source.location",
        "exposure.kind",
        "tags",
    }
)
_CHOICE_LABELS = {
    "tieredstorage": "tieredstorage: Emberline's cache tier",
    "redis": "redis: your own Redis or Valkey",
    **{name: f"{name}: {chosen}" for name, chosen in STRATEGY_CHOICES.items()},
    "lru": "lru: least recently used",
    "arc": "arc: recency and frequency",
    "simulated": "simulated: generated responses, no model",
    "": "by model name",
    "huggingface": "huggingface: downloaded before the worker starts",
    "s3": "s3: mounted bucket",
    "fsx": "fsx: mounted FSx for Lustre",
    "pvc": "pvc: volume claim in the namespace",
    "gateway": "gateway: Gateway API",
    "loadbalancer": "loadbalancer: Service of type LoadBalancer",
    "secret": "secret: Secret in the namespace",
    "cert-manager": "cert-manager: issued and renewed automatically",
}
_SHAPES = {
    "worker_args": "--max-model-len=2048",
    "placement.instance_types": "ml.g5.8xlarge",
    "placement.node_selector": "pool=inference",
    "pod.env": "NAME: value",
    "tags": "team=search",
    "scaling.triggers": "- type: prometheus\n  metadata: {query: ..., threshold: '10'}",
}


def _of_source(name: str) -> tuple[str, ...]:
    kinds = [kind for kind in SOURCE_NEEDS if name in (*SOURCE_NEEDS[kind], *SOURCE_TAKES[kind])]
    return ("source.type", *(kinds or SOURCE_NEEDS))


_ONLY_FOR = {
    "cache.l2.tier": ("cache.l2.backend", "tieredstorage"),
    "cache.l2.url": ("cache.l2.backend", "redis"),
    "cache.l2.password_file": ("cache.l2.backend", "redis"),
    "routing.session_key": ("routing.strategy", "session"),
    "exposure.host": ("exposure.kind", "ingress", "gateway"),
    "exposure.class_name": ("exposure.kind", "ingress", "loadbalancer"),
    "exposure.gateway": ("exposure.kind", "gateway"),
    "exposure.annotations": ("exposure.kind", "ingress", "gateway", "loadbalancer"),
    "exposure.tls": ("exposure.kind", "ingress", "gateway", "loadbalancer"),
    "exposure.tls_secret": ("exposure.tls", "secret", "cert-manager"),
    "exposure.issuer": ("exposure.tls", "cert-manager"),
    **{
        field.path: _of_source(field.path.partition(".")[2])
        for field in FIELDS
        if field.path.startswith("source.") and field.path != "source.type"
    },
}


def required_choice(path: str) -> tuple[str, tuple[str, ...]]:
    """Return the choice field that a field depends on, with the enabling values; "" for none."""
    on, *values = _ONLY_FOR.get(path, ("",))
    return on, tuple(values)


class OfferedSelect(forms.Select):
    """Select with disabled options."""

    def __init__(self, missing: Mapping[str, str], **facts: Any) -> None:
        super().__init__(**facts)
        self.missing = missing

    def create_option(self, name: str, value: Any, *args: Any, **facts: Any) -> dict[str, Any]:
        option = super().create_option(name, value, *args, **facts)
        if str(value) in self.missing:
            option["attrs"]["disabled"] = True
        return option


def missing_text(why: Mapping[str, str]) -> str:
    return "".join(
        f" Unavailable{f': {choice}' if choice else ''}. {text}" for choice, text in why.items()
    )


def widget(spec_field: SpecField, missing: Mapping[str, str]) -> forms.Widget:
    """`missing`: options that the cluster does not support, "" for the field itself."""
    if spec_field.choices:
        options = [(value, _CHOICE_LABELS.get(value, value)) for value in spec_field.choices]
        return OfferedSelect(missing, choices=options)
    more: dict[str, Any] = {"disabled": True} if "" in missing else {}
    if spec_field.kind in (tuple, dict, list):
        shape = _SHAPES.get(spec_field.path, "" if spec_field.kind is tuple else "YAML")
        more["class"] = "font-monospace"
        return forms.Textarea(attrs={"rows": 3, "placeholder": shape, **more})
    if spec_field.kind in (int, float):
        step = "1" if spec_field.kind is int else "any"
        return forms.NumberInput(attrs={"step": step, "inputmode": "decimal", **more})
    return forms.TextInput(attrs=more)


def format_value(spec_field: SpecField, value: Any) -> Any:
    """Format a value for its input; text that could not be parsed is unchanged."""
    if isinstance(value, str):
        return value
    if spec_field.kind is tuple and isinstance(value, list | tuple):
        return "\n".join(str(item) for item in value)
    if spec_field.kind in (dict, list):
        return yaml.safe_dump(value, sort_keys=False).rstrip() if value else ""
    if spec_field.kind is float and isinstance(value, int | float):
        return f"{value:.15g}"
    return value


def parse_value(spec_field: SpecField, typed: str) -> Any:
    """Parse input; return unreadable text unchanged, for the spec to reject."""
    if spec_field.kind is tuple:
        return [line.strip() for line in typed.splitlines() if line.strip()]
    if spec_field.kind is str:
        return typed
    try:
        if spec_field.kind in (dict, list):
            document = yaml_reader.read_document(typed, MAX_CHARACTERS)
            return typed if isinstance(document, str) else document  # YAML folds line breaks
        return int(typed) if spec_field.kind is int else float(typed)
    except ValueError:
        return typed


def to_form_data(flat: Mapping[str, Any]) -> dict[str, str]:
    """Return the form data a browser would submit; only ticked checkboxes are included."""
    form_data: dict[str, str] = {}
    for path, value in flat.items():
        spec_field = BY_PATH.get(path)
        if spec_field is None:
            continue
        if spec_field.kind is bool:
            form_data |= {path: "on"} if value else {}
        else:
            form_data[path] = str(format_value(spec_field, value))
    if flat.get("placement.cluster"):
        form_data[MARK] = str(flat["placement.cluster"])
    return form_data
