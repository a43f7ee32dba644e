"""Parse and write YAML or JSON with one or more documents, as `kubectl` reads them.

Yields plain JSON values only. Duplicate keys, alias bombs, lone surrogates and NaN are rejected,
with the line where YAML provides it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import yaml

from console.core import yaml_reader
from console.core.yaml_reader import YamlError
from endpoints.manifests.foreign import lost_indentation
from endpoints.manifests.structural_schema import schema_error
from endpoints.spec.endpoint_spec import SpecErrors

_MAX_VALUES = yaml_reader.MAX_VALUES
_MAX_DEPTH = yaml_reader.MAX_DEPTH


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, for readability."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def read_documents(text: str) -> list[dict[str, Any]]:
    """Return the objects of a text, with the items of a List. Raise SpecErrors."""
    lost = lost_indentation(text)
    if lost:
        raise _unreadable(f"{lost}.", "Copy it with its leading spaces.")
    try:
        documents = yaml_reader.read_documents(text)
    except YamlError as error:
        message = f"The text cannot be read: {error}."
        has_tabs = "'\\t'" in str(error)
        remedy = "Indent with spaces." if has_tabs else "Send YAML or JSON."
        raise _unreadable(message, remedy) from error
    return check_documents([item for item in documents if item is not None])


def check_documents(found: list[Any]) -> list[dict[str, Any]]:
    _require_plain(found)
    objects = [item for document in found for item in _items(document)]
    if not objects:
        raise _unreadable("The text contains no object.", "Send at least one.")
    return objects


def to_yaml(*objects: dict[str, Any]) -> str:
    return "---\n".join(
        yaml.dump(item, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
        for item in objects
    )


def _items(document: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        raise _unreadable("A document is not an object.", "Begin it with apiVersion and kind.")
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _items(item)
    else:
        yield document


def _require_plain(found: list[Any]) -> None:
    """Reject values outside JSON, and more values than allowed."""
    left = _MAX_VALUES
    stack = [(item, 0) for item in found]
    while stack:
        value, depth = stack.pop()
        left -= 1
        if left < 0 or depth > _MAX_DEPTH:
            raise _unreadable(
                "The text contains too many or too deeply nested values.", "Send fewer objects."
            )
        if isinstance(value, dict):
            if any(not isinstance(key, str) for key in value):
                raise _unreadable("A key is not a string.", "Put it in quotes.")
            stack += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            stack += [(item, depth + 1) for item in value]
        elif isinstance(value, float) and not math.isfinite(value):
            raise _unreadable(f"{value} is not a JSON number.", "Use a JSON number.")
        elif not isinstance(value, str | int | float | bool | None):
            raise _unreadable(f"{type(value).__name__} is not a JSON value.", "Use plain values.")
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise _unreadable("A string contains an unpaired surrogate.", "Remove it.") from None


def _unreadable(message: str, remedy: str) -> SpecErrors:
    return SpecErrors([schema_error("", None, message, remedy, "unreadable")])
