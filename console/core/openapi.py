"""Flatten an OpenAPI document into groups of operations for display. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_METHODS = ("get", "post", "put", "patch", "delete")
_MAX_DEPTH = 6


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    kind: str
    required: bool
    text: str
    place: str = "body"


@dataclass(frozen=True, slots=True)
class Operation:
    id: str
    method: str
    path: str
    summary: str
    text: str
    fields: tuple[Field, ...]
    answers: tuple[tuple[str, str, str], ...]  # status, description, example
    example: str  # of the body; "" if none


def group_operations(document: dict[str, Any]) -> list[tuple[str, list[Operation]]]:
    """Return operations by first tag, in document order."""
    operations: dict[str, list[Operation]] = {}
    for path, item in document.get("paths", {}).items():
        for method in _METHODS:
            if method in item:
                operation = item[method]
                tag = (operation.get("tags") or ["other"])[0]
                operations.setdefault(tag, []).append(_operation(document, path, method, operation))
    return list(operations.items())


def _operation(
    document: dict[str, Any], path: str, method: str, facts: dict[str, Any]
) -> Operation:
    body = _schema(facts.get("requestBody", {}))
    parameters = tuple(
        Field(
            entry["name"],
            _kind(document, entry.get("schema", {})),
            bool(entry.get("required")),
            entry.get("description", ""),
            entry.get("in", "query"),
        )
        for entry in facts.get("parameters", [])
    )
    answers = tuple(
        (status, answer.get("description", ""), _text(_example(document, _schema(answer))))
        for status, answer in facts.get("responses", {}).items()
    )
    return Operation(
        id=facts.get("operationId", f"{method}{path}").replace("/", "_"),
        method=method.upper(),
        path=path,
        summary=facts.get("summary") or facts.get("operationId", "").replace("_", " "),
        text=facts.get("description", ""),
        fields=parameters + tuple(_body_fields(document, body)),
        answers=answers,
        example=_text(_example(document, body)),
    )


def _schema(holder: dict[str, Any]) -> dict[str, Any]:
    content = holder.get("content", {})
    return content.get("application/json", {}).get("schema", {})


def _resolve(document: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follow `$ref`, a single `allOf` and the first of `oneOf`."""
    for _ in range(_MAX_DEPTH):
        if "$ref" in schema:
            schema = document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]
        elif schema.get("allOf") or schema.get("oneOf"):
            schema = (schema.get("allOf") or schema["oneOf"])[0]
        else:
            break
    return schema


def _body_fields(
    document: dict[str, Any], schema: dict[str, Any], prefix: str = "", depth: int = 0
) -> list[Field]:
    schema = _resolve(document, schema)
    required = schema.get("required", [])
    fields: list[Field] = []
    for name, part in schema.get("properties", {}).items():
        if part.get("readOnly"):
            continue
        whole = _resolve(document, part)
        dotted = f"{prefix}{name}"
        text = part.get("description") or whole.get("description", "")
        fields.append(Field(dotted, _kind(document, part), name in required, text))
        if whole.get("properties") and depth < _MAX_DEPTH:
            fields += _body_fields(document, whole, f"{dotted}.", depth + 1)
    return fields


def _kind(document: dict[str, Any], schema: dict[str, Any]) -> str:
    schema = _resolve(document, schema)
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {_kind(document, schema.get('items', {}))}"
    return str(schema.get("format") or kind)


def _example(document: dict[str, Any], schema: dict[str, Any], depth: int = 0) -> Any:
    """Return an example value; None without a schema or beyond the depth limit."""
    if not schema or depth > _MAX_DEPTH:
        return None
    for key in ("example", "default"):
        if key in schema:
            return schema[key]
    schema = _resolve(document, schema)
    for key in ("example", "default"):
        if key in schema:
            return schema[key]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object" or "properties" in schema:
        parts = schema.get("properties", {}).items()
        return {name: _example(document, part, depth + 1) for name, part in parts}
    if kind == "array":
        return [_example(document, schema.get("items", {}), depth + 1)]
    return {"string": "string", "integer": 0, "number": 0.0, "boolean": True}.get(str(kind))


def _text(value: Any) -> str:
    return "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)
