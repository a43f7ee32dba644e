"""Annotations for endpoint fields that an InferenceEndpointConfig has no place for.

`emberline.dev/cache.l1.size_gib: "4"` sets the field of that path; texts are literal, other values
JSON. Every field can be set; other controllers ignore the annotations.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from console.core.errors import Problem
from endpoints.manifests.structural_schema import schema_error
from endpoints.spec.fields import BY_PATH

PREFIX: Final = "emberline.dev/"
ADOPT: Final = f"{PREFIX}adopt"
CONTROL: Final = frozenset({ADOPT, f"{PREFIX}paused"})
"""Annotations for the controller, not endpoint fields."""
_ELSEWHERE: Final = frozenset({"manifest", "placement.cluster", "placement.namespace"})


def key_of(path: str) -> str:
    return f"{PREFIX}{path}"


def place_of(path: str) -> str:
    return f"metadata.annotations[{key_of(path)}]"


def fields(annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return values by field path, without those rejected by `problems`."""
    fields_read = {}
    for key, text in annotations.items():
        path = key.removeprefix(PREFIX)
        if key.startswith(PREFIX) and path in BY_PATH and path not in _ELSEWHERE:
            value, fits = _parsed(path, text)
            if fits:
                fields_read[path] = value
    return fields_read


def problems(annotations: Mapping[str, str]) -> Iterator[Problem]:
    """Yield errors for our annotations with an unknown field or an invalid value."""
    for key, text in annotations.items():
        if not key.startswith(PREFIX) or key in CONTROL:
            continue
        path = key.removeprefix(PREFIX)
        if path in _ELSEWHERE:
            remedy = "Remove it: the cluster is chosen when the object is applied."
            message = "Not available as an annotation."
            yield schema_error(place_of(path), text, message, remedy, "unknown_field")
        elif path not in BY_PATH:
            yield schema_error(
                place_of(path), text, "Unknown field.", _suggestion(path), "unknown_field"
            )
        elif not _parsed(path, text)[1]:
            remedy = f"{BY_PATH[path].remedy} The value is parsed as JSON."
            yield schema_error(place_of(path), None, "Invalid value.", remedy, "type")


def text_of(path: str, value: Any) -> str:
    return value if BY_PATH[path].kind is str else json.dumps(value, sort_keys=True)


def _parsed(path: str, text: str) -> tuple[Any, bool]:
    if BY_PATH[path].kind is str:
        return text, True
    try:
        return json.loads(text), True
    except (ValueError, RecursionError):
        return None, False


def _suggestion(path: str) -> str:
    near = difflib.get_close_matches(path, BY_PATH, n=1, cutoff=0.6)
    return f"Did you mean {key_of(near[0])}?" if near else "Remove it."
