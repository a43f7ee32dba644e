"""Validate field names and types of objects.

Built-in kinds by the models of the official client, which are generated from the API description;
custom ones by the schema of their CustomResourceDefinition.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

from kubernetes import client as models

from tests.support.kube.fake.refusals import ApiError

JSON = {"str": str, "int": int, "bool": bool, "float": (int, float)}
VERSIONED = {"HorizontalPodAutoscaler": "V2", "Event": "CoreV1", "EndpointSlice": "V1"}
# Not in the models: integer or name, quantity as a number.
LOOSE = ("requests", "limits", "capacity", "hard", "allocatable")

Trouble = tuple[str, str, str]  # path, what, text


def model_of(kind: str) -> Any:
    return getattr(models, VERSIONED.get(kind, "V1") + kind, None)


def troubles(kind: str, data: dict[str, Any], schema: dict[str, Any] | None) -> list[Trouble]:
    """Return problems; `what` is unknown, type or invalid."""
    if schema is not None:
        body = {key: value for key, value in data.items() if key != "metadata"}
        found = list(_structural(body, schema, ""))
        return found + list(_modelled(data.get("metadata", {}), models.V1ObjectMeta, "metadata"))
    model = model_of(kind)
    return list(_modelled(data, model, "")) if model is not None else []


def check(
    kind: str, data: dict[str, Any], schema: dict[str, Any] | None, strict: bool, apply: bool
) -> list[Trouble]:
    """Raise what makes the server refuse the object, return the rest."""
    found = troubles(kind, data, schema)
    unknown = [path for path, what, _ in found if what == "unknown"]
    if unknown and apply:
        version = data["apiVersion"].partition("/")
        raise ApiError(
            500,
            f"failed to create typed patch object ({data['metadata'].get('namespace', '')}/"
            f"{data['metadata']['name']}; {version[0]}{version[1]}{version[2]}, Kind={kind}): "
            f".{unknown[0]}: field not declared in schema",
            reason="",
        )
    for path, what, text in found:
        if what == "type":
            shown = f"{kind} in version {data['apiVersion']!r} cannot be handled as a {kind}: "
            raise ApiError(400, f"{shown}json: cannot unmarshal {text} at {path}")
    if unknown and strict:
        listed = ", ".join(f'unknown field "{path}"' for path in unknown)
        raise ApiError(400, f"strict decoding error: {listed}")
    invalid = [(path, text) for path, what, text in found if what == "invalid"]
    if invalid:
        name = data["metadata"].get("name", "")
        causes = [
            {"reason": "FieldValueInvalid", "message": text, "field": path}
            for path, text in invalid
        ]
        spelled = ", ".join(f"{path}: {text}" for path, text in invalid)
        spelled = spelled if len(invalid) == 1 else f"[{spelled}]"
        raise ApiError(422, f'{kind} "{name}" is invalid: {spelled}', causes=causes, kind=kind)
    return found


def prune(data: dict[str, Any], found: list[Trouble]) -> None:
    """Drop unknown fields, as without strict validation."""
    for path, what, _ in found:
        if what == "unknown":
            at: Any = data
            *outer, last = re.findall(r"[^.\[\]]+", path)
            for part in outer:
                at = at[int(part)] if isinstance(at, list) else at[part]
            at.pop(last, None)


def _modelled(value: Any, model: Any, path: str) -> Iterator[Trouble]:
    if not isinstance(value, dict):
        if value is not None:
            yield path, "type", f"{type(value).__name__} into object"
        return
    types = _field_types(model)
    for key, inner in value.items():
        here = f"{path}.{key}" if path else key
        if key not in types:
            yield here, "unknown", ""
        elif inner is not None:
            yield from _typed(inner, types[key], here)


@functools.cache
def _field_types(model: Any) -> dict[str, str]:
    return {json: model.openapi_types[name] for name, json in model.attribute_map.items()}


def _typed(value: Any, text: str, path: str) -> Iterator[Trouble]:
    name = path.rpartition(".")[2]
    if text in JSON:
        right = JSON[text]
        if not isinstance(value, right) or (text == "int" and isinstance(value, bool)):
            yield path, "type", f"{type(value).__name__} into {text}"
    elif text.startswith("List["):
        if not isinstance(value, list):
            yield path, "type", f"{type(value).__name__} into list"
            return
        for index, item in enumerate(value):
            yield from _typed(item, text[5:-1], f"{path}[{index}]")
    elif text.startswith("Dict["):
        if not isinstance(value, dict):
            yield path, "type", f"{type(value).__name__} into map"
            return
        for key, item in value.items():
            if name not in LOOSE:
                yield from _typed(item, text[5:-1].partition(", ")[2], f"{path}.{key}")
    elif hasattr(models, text) and hasattr(getattr(models, text), "attribute_map"):
        yield from _modelled(value, getattr(models, text), path)


_TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}


def _structural(value: Any, schema: dict[str, Any], path: str) -> Iterator[Trouble]:
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str):
            yield path, "invalid", "Invalid value: must be an integer or a string"
        return
    if value is None and schema.get("nullable"):
        return
    kind = schema.get("type", "")
    wanted = _TYPES.get(kind)
    if wanted and (
        not isinstance(value, wanted) or (isinstance(value, bool) and kind != "boolean")
    ):
        text = f'Invalid value: "{type(value).__name__}": must be of type {kind}'
        yield path, "invalid", text
    elif isinstance(value, dict):
        yield from _structural_map(value, schema, path)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield path, "invalid", f"Invalid value: should have at least {schema['minItems']} items"
        if len(value) > schema.get("maxItems", 1 << 30):
            yield path, "invalid", f"Too many: must have at most {schema['maxItems']} items"
        for index, item in enumerate(value):
            yield from _structural(item, schema.get("items", {}), f"{path}[{index}]")
    else:
        yield from _scalar(value, schema, path)


def _structural_map(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[Trouble]:
    known, rest = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value and (path or name not in ("metadata", "apiVersion", "kind")):
            yield (f"{path}.{name}" if path else name), "invalid", "Required value"
    for key, inner in value.items():
        here = f"{path}.{key}" if path else key
        if key in known:
            yield from _structural(inner, known[key], here)
        elif isinstance(rest, dict):
            yield from _structural(inner, rest, here)
        elif not (rest or schema.get("x-kubernetes-preserve-unknown-fields")) and (
            path or key not in ("apiVersion", "kind")
        ):
            yield here, "unknown", ""


def _scalar(value: Any, schema: dict[str, Any], path: str) -> Iterator[Trouble]:
    if "enum" in schema and value not in schema["enum"]:
        listed = ", ".join(f'"{item}"' for item in schema["enum"])
        yield path, "invalid", f'Unsupported value: "{value}": supported values: {listed}'
    if isinstance(value, str):
        if "pattern" in schema and not re.search(schema["pattern"], value):
            text = f"Invalid value: \"{value}\": should match '{schema['pattern']}'"
            yield path, "invalid", text
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 1 << 30):
            yield path, "invalid", f'Invalid value: "{value}": has a wrong length'
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if value < schema.get("minimum", value):
            yield path, "invalid", f"Invalid value: {value}: should be at least {schema['minimum']}"
        if value > schema.get("maximum", value):
            yield path, "invalid", f"Invalid value: {value}: should be at most {schema['maximum']}"
