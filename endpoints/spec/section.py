"""Fields of a cluster section: defaults from the section class, remedies by type."""

from __future__ import annotations

from typing import Any

from endpoints.spec.cluster_spec import (
    ExposureSpec,
    LimitsSpec,
    MonitoringSpec,
    PdSpec,
    PlacementSpec,
    PodSpec,
    RolloutSpec,
    RouterSpec,
    ScalingSpec,
    SourceSpec,
)
from endpoints.spec.field import Effect, SpecField
from endpoints.spec.validators import (
    key_values,
    key_values_problem,
    object_name_problem,
    objects_problem,
)

DAY_S = 86_400
NAMED: dict[str, Any] = {"rule": object_name_problem}
PAIRS: dict[str, Any] = {
    "rule": key_values_problem,
    "from_text": key_values,
    "remedy": "Write KEY=VALUE pairs such as team=search, or give an object, {} for none.",
}
SECONDS: dict[str, Any] = {"minimum": 0, "maximum": DAY_S}

DEFAULTS: dict[str, Any] = {
    "placement": PlacementSpec(),
    "source": SourceSpec(),
    "pod": PodSpec(),
    "rollout": RolloutSpec(),
    "scaling": ScalingSpec(),
    "exposure": ExposureSpec(),
    "router": RouterSpec(),
    "limits": LimitsSpec(),
    "monitoring": MonitoringSpec(),
    "pd": PdSpec(),
}
SECTIONS = tuple(DEFAULTS)
_REMEDIES: dict[type, str] = {
    str: "Give a text, or leave it empty.",
    int: "Give a whole number.",
    bool: "Give true or false.",
    tuple: "Give a list of texts.",
    dict: "Give an object, {} for none.",
    list: "Give a list of objects, [] for none.",
}


def section_fields(
    path: str, kind: type, label: str, text: str, effect: Effect, remedy: str = "", **more: Any
) -> SpecField:
    section, _, name = path.partition(".")
    default = getattr(DEFAULTS[section], name) if name else {}
    if kind in (int, float) and not remedy:
        low, high = more["minimum"], more["maximum"]
        number = "whole number" if kind is int else "number"
        remedy = f"Give a {number} from {low:g} to {high:g}."
    if "choices" in more:
        remedy = "Choose one of: " + ", ".join(filter(None, more["choices"])) + "."
    if kind is list and "rule" not in more:
        more["rule"] = objects_problem
    return SpecField(path, kind, default, label, text, remedy or _REMEDIES[kind], effect, **more)
