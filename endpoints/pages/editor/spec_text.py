"""Editable YAML of a spec, with the line of each error.

Writing and reading round-trip. Invalid text is never applied in part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from console.core import yaml_reader
from console.core.errors import Problem
from endpoints.manifests import documents, objects
from endpoints.spec.endpoint_spec import SpecErrors, flatten, nest
from endpoints.spec.fields import DEFAULTS, FIELDS, SECTIONS

LONGEST = 200_000
"""Limit (characters); a spec with many volumes has some thousands."""
OUTSIDE_TEXT = frozenset({"manifest"})
"""Fields kept outside the text: the complete imported object."""
NOT_APPLIED = frozenset({"type", "unknown_field", "unreadable", "cluster_only"})
"""Error codes without a form field."""


@dataclass(frozen=True, slots=True)
class LineError:
    """Error in a line of the YAML. `line` counts from 1; 0 if unknown."""

    line: int
    field: str
    message: str
    remedy: str


@dataclass(frozen=True, slots=True)
class SpecText:
    """Parsed text with the line of each field."""

    data: Mapping[str, Any]
    lines: Mapping[str, int]


def to_text(data: Mapping[str, Any]) -> str:
    """Return YAML with fields in form order; cluster sections are omitted while all default."""
    flat = flatten(data)
    document = {f.path: _listed(flat[f.path]) for f in FIELDS if f.path in flat}
    for path in OUTSIDE_TEXT & set(document):
        del document[path]
    if document.get("tags") in ({}, ""):
        del document["tags"]
    for section, default in DEFAULTS.items():
        defaults = flatten({section: asdict(default)})
        usual = {path: _listed(value) for path, value in defaults.items()}
        if all(document.get(path, value) == value for path, value in usual.items()):
            document = {path: value for path, value in document.items() if path not in usual}
    return documents.to_yaml(nest(document))


def parse_text(text: str) -> SpecText:
    if len(text) > LONGEST:
        raise _refused(f"The text has {len(text)} characters.", f"Use at most {LONGEST}.")
    manifests = documents.read_documents(text)
    if len(manifests) != 1:
        raise _refused(f"The text contains {len(manifests)} objects.", "Keep one endpoint.")
    if objects.is_manifest(manifests[0]):
        kind = manifests[0].get("kind", "another kind")
        raise _refused(f"The text is an object of kind {kind}.", "Use the page Import.")
    return SpecText(manifests[0], yaml_reader.key_lines(text, SECTIONS))


def locate_errors(errors: Iterable[Problem], lines: Mapping[str, int]) -> tuple[LineError, ...]:
    line_errors = [
        LineError(_line(error.field, lines), error.field, error.message, error.remedy)
        for error in errors
    ]
    return tuple(sorted(line_errors, key=lambda one: one.line))


def syntax_errors(refusal: SpecErrors) -> tuple[LineError, ...]:
    """Return the errors of invalid YAML."""
    line = getattr(refusal.__cause__, "line", 0)
    return tuple(
        LineError(line, error.field, error.message, error.remedy) for error in refusal.errors
    )


def _line(path: str, lines: Mapping[str, int]) -> int:
    """Return the line of the field, else of the nearest enclosing section, else 0."""
    while path:
        if path in lines:
            return lines[path]
        path = path.rpartition(".")[0]
    return 0


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _refused(message: str, remedy: str) -> SpecErrors:
    return SpecErrors([Problem("", None, message, remedy, "unreadable")])
