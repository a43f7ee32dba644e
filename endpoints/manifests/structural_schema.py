"""Validate a value against a structural schema, with clearer messages than the API server's.

All errors are returned at once with their paths. A value that passes also passes the API server's
check; unknown fields, which the server drops silently, are errors. Supports the subset of OpenAPI
used by custom resources.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from console.core.errors import Problem

Schema = Mapping[str, Any]

_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "object": ((dict,), "an object"),
    "array": ((list,), "a list"),
    "string": ((str,), "text"),
    "integer": ((int,), "an integer"),
    "number": ((int, float), "a number"),
    "boolean": ((bool,), "true or false"),
}
_RANGES = {"int32": 2**31, "int64": 2**63}
# Errors are displayed and logged: omit values that may be secrets.
_SECRET = re.compile(r"environmentVariables\[|\.env\[|customHeaders|httpHeaders")
_LONGEST_SHOWN = 120
_UNQUOTED = {
    "integer": re.compile(r"-?[0-9]+"),
    "number": re.compile(r"-?[0-9.]+"),
    "boolean": re.compile(r"true|false"),
}
_MATCH_NOTHING = re.compile(r"(?!)")


def check(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    problem = _type_problem(value, schema, path)
    if problem is not None:
        yield problem
        return
    if isinstance(value, dict):
        yield from _object(value, schema, path)
    elif isinstance(value, list):
        yield from _list(value, schema, path)
    else:
        yield from _scalar(value, schema, path)


def schema_error(path: str, value: Any, message: str, remedy: str, code: str) -> Problem:
    return Problem(path, _shown(path, value), message, remedy, code)


def _type_problem(value: Any, schema: Schema, path: str) -> Problem | None:
    if schema.get("x-kubernetes-int-or-string"):
        if isinstance(value, int | str) and not isinstance(value, bool):
            return None
        return schema_error(
            path, value, "Must be an integer or a string.", "Write 1 or '500m'.", "type"
        )
    kinds, words = _KINDS[schema["type"]]
    if isinstance(value, kinds) and (schema["type"] == "boolean" or not isinstance(value, bool)):
        return None
    if value is None:
        return schema_error(path, None, "Empty value.", f"Remove it, or give {words}.", "type")
    return schema_error(
        path, value, f"This must be {words}.", _type_hint(value, schema["type"]), "type"
    )


def _type_hint(value: Any, wanted: str) -> str:
    """Return a hint on YAML typing: unquoted numbers or yes where text is expected, and the
    reverse.
    """
    if wanted == "string" and isinstance(value, bool | int | float):
        return "Put it in quotes."
    if isinstance(value, str) and _UNQUOTED.get(wanted, _MATCH_NOTHING).fullmatch(value):
        return "Write it without quotes."
    return f"Give {_KINDS[wanted][1]}."


def _object(value: dict[Any, Any], schema: Schema, path: str) -> Iterator[Problem]:
    schemas: Mapping[str, Schema] = schema.get("properties", {})
    others = schema.get("additionalProperties")
    for name in schema.get("required", ()):
        if name not in value:
            yield schema_error(_at(path, name), None, "Missing value.", "Add it.", "required")
    for name, item in value.items():
        if name in schemas:
            yield from check(item, schemas[name], _at(path, name))
        elif isinstance(others, Mapping):
            yield from check(item, others, f"{path}[{name}]")
        elif schemas or not schema.get("x-kubernetes-preserve-unknown-fields"):
            yield _unknown(_at(path, str(name)), str(name), item, schemas)


def _unknown(path: str, name: str, value: Any, known: Mapping[str, Schema]) -> Problem:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    if not near:
        near = [other for other in known if other.lower() == name.lower()]
    if near:
        remedy = f"Did you mean {near[0]}?"
    elif known:
        remedy = f"Remove it, or use one of: {', '.join(sorted(known))}."
    else:
        remedy = "Remove it."
    return schema_error(path, value, "Unknown field.", remedy, "unknown_field")


def _list(value: list[Any], schema: Schema, path: str) -> Iterator[Problem]:
    fewest, most = schema.get("minItems", 0), schema.get("maxItems")
    if len(value) < fewest:
        yield schema_error(
            path, value, f"At least {fewest} are needed.", "Add entries.", "out_of_range"
        )
    if most is not None and len(value) > most:
        message = f"At most {most} entries are allowed; there are {len(value)}."
        yield schema_error(path, value, message, "Remove entries.", "out_of_range")
    items = schema.get("items", {})
    for index, item in enumerate(value):
        yield from check(item, items, f"{path}[{index}]")
    yield from _duplicate_errors(value, schema, path)


def _duplicate_errors(value: list[Any], schema: Schema, path: str) -> Iterator[Problem]:
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("map", "set"):
        return
    keys = schema.get("x-kubernetes-list-map-keys", ())
    keys_before: set[str] = set()
    for index, item in enumerate(value):
        if kind == "map" and not isinstance(item, dict):
            continue
        mark = repr([item.get(key) for key in keys]) if kind == "map" else repr(item)
        if mark in keys_before:
            excerpt = ", ".join(str(item.get(key)) for key in keys) if kind == "map" else item
            message = f"{excerpt} is given twice."
            yield schema_error(f"{path}[{index}]", None, message, "Keep one of them.", "duplicate")
        keys_before.add(mark)


def _scalar(value: Any, schema: Schema, path: str) -> Iterator[Problem]:
    choices = schema.get("enum")
    if choices and value not in choices:
        remedy = f"Choose one of: {', '.join(map(str, choices))}."
        yield schema_error(path, value, "Unknown value.", remedy, "invalid_choice")
    if isinstance(value, str):
        yield from _text(value, schema, path)
    elif not isinstance(value, bool):
        yield from _number(value, schema, path)


def _text(value: str, schema: Schema, path: str) -> Iterator[Problem]:
    pattern = schema.get("pattern")
    if pattern and not _compile_pattern(pattern).search(value):
        yield schema_error(path, value, "Invalid format.", f"It must match {pattern}", "pattern")
    longest = schema.get("maxLength")
    if longest is not None and len(value) > longest:
        message = f"This can have at most {longest} characters; it has {len(value)}."
        yield schema_error(path, value, message, "Shorten it.", "out_of_range")
    if len(value) < schema.get("minLength", 0):
        yield schema_error(path, value, "Empty value.", "Enter text.", "required")


def _number(value: float, schema: Schema, path: str) -> Iterator[Problem]:
    least, most = schema.get("minimum"), schema.get("maximum")
    bound = _RANGES.get(schema.get("format", ""))
    if least is not None and value < least:
        message = f"This cannot be less than {least}."
        yield schema_error(path, value, message, f"Give {least} or more.", "out_of_range")
    elif most is not None and value > most:
        message = f"This cannot be more than {most}."
        yield schema_error(path, value, message, f"Give {most} or less.", "out_of_range")
    elif bound is not None and not -bound <= value < bound:
        yield schema_error(
            path, value, "The number is too large.", "Use a smaller number.", "out_of_range"
        )


@cache
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile with Go's semantics: ASCII digits, $ matches only at the end of the text."""
    return re.compile(re.sub(r"(?<!\\)\$", r"\\Z", pattern), re.ASCII)


def _at(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(path: str, value: Any) -> Any:
    if value is None or _SECRET.search(path):
        return None
    if isinstance(value, str) and len(value) > _LONGEST_SHOWN:
        return value[:_LONGEST_SHOWN] + "…"
    if isinstance(value, dict | list):
        return None
    return value
