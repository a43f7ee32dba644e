"""Validate every exported board against Grafana's published dashboard schema.

    python -m bench.grafana_schema SCHEMAS      the folder `jsonschema` of Grafana's foundation SDK

The schema is Grafana's and not stored here. It wrongly restricts "any value" to "an object"
(matcher options, property values, variable queries), which is corrected after loading. Prints
problems and exits with 1, or prints the number of boards checked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema

from dashboards.grafana.export import dashboard
from dashboards.grafana.export.dashboard import list_exports

Schema = dict[str, Any]
_ANYTHING = (
    {"type": "object", "additionalProperties": {}},
    {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {}}},
)


def main(folder: Path) -> int:
    wrong: list[str] = []
    panels = targets = 0
    boards = [dashboard(one, "https://console.example.com/") for one in list_exports()]
    for made in boards:
        wrong += _wrong(folder, "dashboard", "Dashboard", made, made["uid"])
        for panel in made["panels"]:
            if panel["type"] == "row":
                continue
            panels += 1
            targets += len(panel["targets"])
            wrong += _wrong_panel(folder, panel, f"{made['uid']} / {panel['title']}")
    print("\n".join(wrong) or f"{len(boards)} boards, {panels} panels, {targets} questions: right")
    return 1 if wrong else 0


def _wrong_panel(folder: Path, panel: Schema, where: str) -> Iterator[str]:
    kind = panel["type"]
    yield from _wrong(folder, kind, "Options", panel["options"], f"{where} options")
    defaults = panel["fieldConfig"]["defaults"]
    if "custom" in defaults:
        yield from _wrong(folder, kind, "FieldConfig", defaults["custom"], f"{where} custom")
    for target in panel["targets"]:
        yield from _wrong(folder, "prometheus", "Dataquery", target, f"{where} target")


def _wrong(folder: Path, file: str, definition: str, made: Any, where: str) -> Iterator[str]:
    schema = _loosened(json.loads((folder / f"{file}.jsonschema.json").read_text()))
    schema["$ref"] = f"#/definitions/{definition}"
    for error in jsonschema.Draft7Validator(schema).iter_errors(made):
        reasons = "; ".join(part.message[:200] for part in error.context or ())
        yield f"{where} {error.json_path}: {error.message[:300]} {reasons}"


def _loosened(schema: Any) -> Any:
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if key != "description"}
        if kept in _ANYTHING:
            return {}
        found = {key: _loosened(value) for key, value in schema.items()}
        return {} if {} in found.get("oneOf", ()) else found
    return [_loosened(part) for part in schema] if isinstance(schema, list) else schema


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
