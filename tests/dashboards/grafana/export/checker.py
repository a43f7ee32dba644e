"""Closed schema of the Grafana fields used by the export.

Derived from Grafana's published schema, which is not part of this repository;
bench/grafana_schema.py validates an export against a copy. Fields not named here would be dropped
by Grafana.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema

Object = dict[str, Any]

_REF = {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}}
_TEXT = {"type": "string", "minLength": 1}
_COLOUR = {"type": "string", "pattern": "^#[0-9A-F]{6}$"}


def closed(properties: Object, optional: tuple[str, ...] = ()) -> Object:
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def several(item: Object, **more: Any) -> Object:
    return {"type": "array", "items": item, **more}


def one_of(*values: Any) -> Object:
    return {"enum": list(values)}


_SOURCE = closed(_REF)
_FLAG = {"type": "boolean"}
_LINK = closed(
    {
        "title": _TEXT,
        "type": one_of("link", "dashboards"),
        "icon": one_of("dashboard", "external link"),
        "tooltip": {"type": "string"},
        "url": {"type": "string", "pattern": "^(https?://|/d/emberline-)"},
        "tags": several(_TEXT),
        "asDropdown": _FLAG,
        "targetBlank": _FLAG,
        "includeVars": _FLAG,
        "keepTime": _FLAG,
    },
    ("url",),
)
_QUERY = closed({"qryType": one_of(1), "query": _TEXT, "refId": _TEXT})
_VARIABLE = closed(
    {
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "label": _TEXT,
        "type": one_of("query", "datasource"),
        "query": {"anyOf": [_QUERY, {"const": "prometheus"}]},
        "datasource": _SOURCE,
        "definition": _TEXT,
        "refresh": one_of(0, 1, 2),
        "sort": {"type": "integer", "minimum": 0, "maximum": 8},
        "hide": one_of(0, 1, 2),
        "multi": _FLAG,
        "includeAll": _FLAG,
        "allValue": _TEXT,
        "current": closed({"text": _TEXT, "value": _TEXT}),
    },
    ("datasource", "definition", "refresh", "sort", "multi", "includeAll", "allValue", "current"),
)
_ANNOTATION = closed(
    {
        "name": _TEXT,
        "datasource": _SOURCE,
        "enable": _FLAG,
        "hide": _FLAG,
        "iconColor": _COLOUR,
        "expr": _TEXT,
        "titleFormat": _TEXT,
        "textFormat": _TEXT,
        "tagKeys": _TEXT,
        "step": _TEXT,
        "useValueForTime": _FLAG,
    }
)
_GRID = closed({edge: {"type": "integer", "minimum": 0} for edge in "xywh"})
_TARGET = closed(
    {
        "refId": {"type": "string", "pattern": "^[A-Z]$"},
        "datasource": _SOURCE,
        "editorMode": one_of("code", "builder"),
        "expr": _TEXT,
        "legendFormat": _TEXT,
        "range": _FLAG,
        "instant": _FLAG,
        "format": one_of("time_series", "table", "heatmap"),
    },
    ("format",),
)
_PROPERTY = {
    "oneOf": [
        closed({"id": one_of("displayName"), "value": _TEXT}),
        closed(
            {
                "id": one_of("color"),
                "value": closed({"mode": one_of("fixed"), "fixedColor": _COLOUR}),
            }
        ),
        closed(
            {
                "id": one_of("custom.lineStyle"),
                "value": closed(
                    {"fill": one_of("dash"), "dash": several({"type": "integer"}, minItems=2)}
                ),
            }
        ),
    ]
}
_OVERRIDE = closed(
    {
        "matcher": closed({"id": one_of("byName"), "options": _TEXT}),
        "properties": several(_PROPERTY, minItems=1),
    }
)
_CUSTOM = closed(
    {
        "drawStyle": one_of("line", "bars"),
        "lineInterpolation": one_of("linear"),
        "lineWidth": {"type": "integer"},
        "fillOpacity": {"type": "integer"},
        "showPoints": one_of("auto", "never", "always"),
        "spanNulls": _FLAG,
        "stacking": closed({"mode": one_of("none", "normal", "percent"), "group": _TEXT}),
    }
)
_DEFAULTS = closed(
    {
        "unit": _TEXT,
        "min": {"type": "number"},
        "max": {"type": "number"},
        "color": closed({"mode": one_of("palette-classic-by-name")}),
        "noValue": _TEXT,
        "links": several(_LINK),
        "custom": _CUSTOM,
    },
    ("unit", "min", "max", "color", "noValue", "links", "custom"),
)
_REDUCED = closed({"calcs": several(_TEXT), "fields": {"const": ""}, "values": _FLAG})
_OPTIONS = {
    "timeseries": closed(
        {
            "legend": closed(
                {
                    "displayMode": one_of("list", "table", "hidden"),
                    "placement": one_of("bottom", "right"),
                    "showLegend": _FLAG,
                    "calcs": several(one_of("lastNotNull", "mean", "min", "max")),
                }
            ),
            "tooltip": closed(
                {
                    "mode": one_of("single", "multi", "none"),
                    "sort": one_of("asc", "desc", "none"),
                    "hideZeros": _FLAG,
                }
            ),
        }
    ),
    "stat": closed(
        {
            "graphMode": one_of("none", "line", "area"),
            "colorMode": one_of("value", "background", "background_solid", "none"),
            "justifyMode": one_of("auto", "center"),
            "textMode": one_of("auto", "value", "value_and_name", "name", "none"),
            "wideLayout": _FLAG,
            "showPercentChange": _FLAG,
            "percentChangeColorMode": one_of("standard", "inverted", "same_as_value"),
            "orientation": one_of("auto", "vertical", "horizontal"),
            "reduceOptions": _REDUCED,
        }
    ),
    "heatmap": closed(
        {
            "calculate": _FLAG,
            "cellGap": {"type": "integer"},
            "color": closed(
                {
                    "mode": one_of("opacity", "scheme"),
                    "scheme": one_of("Cividis"),
                    "fill": _TEXT,
                    "scale": one_of("linear", "exponential"),
                    "exponent": {"type": "number"},
                    "steps": {"type": "integer", "minimum": 2, "maximum": 128},
                    "reverse": _FLAG,
                }
            ),
            "cellValues": closed({"unit": _TEXT}),
            "rowsFrame": closed({"layout": one_of("auto", "le", "ge", "unknown")}),
            "showValue": one_of("auto", "always", "never"),
            "yAxis": closed({"axisPlacement": one_of("left"), "reverse": _FLAG, "unit": _TEXT}),
            "legend": closed({"show": _FLAG}),
            "tooltip": closed(
                {"mode": one_of("single"), "yHistogram": _FLAG, "showColorScale": _FLAG}
            ),
            "exemplars": closed({"color": _TEXT}),
            "filterValues": closed({"le": {"type": "number"}}),
        }
    ),
}
_PLACED: Object = {"id": {"type": "integer", "minimum": 1}, "gridPos": _GRID, "title": _TEXT}
_ROW = closed(
    _PLACED | {"type": {"const": "row"}, "collapsed": _FLAG, "panels": several({}, maxItems=0)}
)


_RENAME = closed(
    {"id": {"const": "renameByRegex"}, "options": closed({"regex": _TEXT, "renamePattern": _TEXT})}
)


def _panel(kind: str) -> Object:
    config = closed({"defaults": _DEFAULTS, "overrides": several(_OVERRIDE)})
    return closed(
        _PLACED
        | {"type": {"const": kind}, "description": _TEXT, "datasource": _SOURCE}
        | {"targets": several(_TARGET, minItems=1), "fieldConfig": config}
        | {"options": _OPTIONS[kind]}
        | {"transformations": several(_RENAME, minItems=1)},
        ("transformations",),
    )


PANELS: Object = {"row": _ROW, **{kind: _panel(kind) for kind in _OPTIONS}}
DASHBOARD = closed(
    {
        "uid": {"type": "string", "pattern": "^[a-z0-9-]{8,40}$"},
        "title": _TEXT,
        "description": _TEXT,
        "tags": several(_TEXT),
        "schemaVersion": {"type": "integer", "minimum": 36, "maximum": 42},
        "editable": _FLAG,
        "graphTooltip": one_of(0, 1, 2),
        "timezone": one_of("utc", "browser"),
        "time": closed({"from": _TEXT, "to": _TEXT}),
        "refresh": {"type": "string", "pattern": "^[0-9]+[smh]$"},
        "links": several(_LINK),
        "templating": closed({"list": several(_VARIABLE)}),
        "annotations": closed({"list": several(_ANNOTATION)}),
        "panels": several({}, minItems=1),
    }
)


_OF_PANELS = {kind: jsonschema.Draft7Validator(schema) for kind, schema in PANELS.items()}
_OF_BOARDS = jsonschema.Draft7Validator(DASHBOARD)


def wrong_with(made: Object) -> list[str]:
    found = [_describe(error) for error in _OF_BOARDS.iter_errors(made)]
    return found + [error for panel in made["panels"] for error in wrong_with_panel(panel)]


def wrong_with_panel(panel: Object) -> list[str]:
    return [_describe(error) for error in _OF_PANELS[panel["type"]].iter_errors(panel)]


def _describe(error: jsonschema.ValidationError) -> str:
    return f"{error.json_path}: {error.message}"


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


def overlapping(panels: list[Object]) -> list[tuple[str, str]]:
    """Panels which lie on each other, or reach over the edge."""
    taken: dict[tuple[int, int], str] = {}
    found = []
    for panel in panels:
        place = panel["gridPos"]
        if place["x"] + place["w"] > 24:
            found.append((panel["title"], "the edge"))
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                other = taken.setdefault((x, y), panel["title"])
                if other != panel["title"]:
                    found.append((panel["title"], other))
    return found
