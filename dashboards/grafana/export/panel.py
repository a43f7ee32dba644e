"""Build a Grafana panel: type, unit, colours, dashes and queries.

Each query is rendered with placeholder values, which are then replaced by variables. Rendering
twice with different times detects values computed from the times: such a query is rejected, because
Grafana could not follow.
"""

from __future__ import annotations

import re
from typing import Any, Final

from dashboards.boards import queries
from dashboards.boards.panels.declarations import Panel, PanelLine, Style, Unit
from dashboards.boards.panels.styles import REASONS
from dashboards.boards.queries import Scope, Times
from dashboards.boards.queries.promql import ANY_WORKER
from routing.analysis.label_names import list_names

Object = dict[str, Any]
DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
UNITS: Final[dict[Unit, str]] = {
    "per_s": "suffix:/s",  # generic: Grafana's own rate units name a quantity
    "seconds": "s",
    "share": "percentunit",
    "count": "short",
    "tokens": "short",
    "tokens_per_s": "si:tok/s",
    "bytes": "bytes",
    "bytes_per_s": "binBps",
    "usd": "currencyUSD",
    "usd_hour": "suffix: USD/h",
    "celsius": "celsius",
    "watts": "watt",
}
# Plotly's dash names as pixel lengths for Grafana.
_DASHES: Final[dict[str, list[int]]] = {
    "dash": [10, 6],
    "dot": [2, 5],
    "dashdot": [10, 5, 2, 5],
    "longdash": [18, 6],
    "longdashdot": [18, 5, 2, 5],
}
_JOINED: Final = "strategy_reason"
_LEGEND: Final = {"displayMode": "table", "placement": "bottom", "showLegend": True}


def make_panel(declared: Panel, *, one: bool) -> Object:
    """Return the panel without position and id, which the dashboard sets."""
    made = _KINDS.get(declared.kind, _series)(declared)
    made |= {
        "title": declared.title,
        "description": _description(declared),
        "datasource": DATASOURCE,
        "targets": [
            _target(declared, line, place, export_line(line, one=one))
            for place, line in enumerate(declared.lines)
        ],
    }
    made["fieldConfig"]["overrides"] = [
        _make_override(key, style) for key, style in declared.legend.items()
    ] + [_make_name(code, name) for code, name in _list_unstyled(declared).items()]
    if any(line.by == _JOINED for line in declared.lines):
        made["transformations"] = [
            _make_rename(reason, style.label) for reason, style in REASONS.items()
        ]
    return made


def _list_unstyled(declared: Panel) -> dict[str, str]:
    """Return the names of label values that have no style of their own."""
    labels = (line.by for line in declared.lines if not line.name)
    names = {
        code: name for label in labels for code, name in list_names(label, declared.metric).items()
    }
    return {
        code: name for code, name in names.items() if code not in declared.legend and name != code
    }


def _make_name(code: str, name: str) -> Object:
    return {
        "matcher": {"id": "byName", "options": code},
        "properties": [{"id": "displayName", "value": name}],
    }


def _make_rename(reason: str, name: str) -> Object:
    """Name the second of two joined label values; overrides match whole names only."""
    return {
        "id": "renameByRegex",
        "options": {"regex": f"^(.+) {reason}$", "renamePattern": f"$1: {name}"},
    }


def _target(declared: Panel, line: PanelLine, place: int, expression: str) -> Object:
    return {
        "refId": chr(ord("A") + place),
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": expression,
        "legendFormat": line.name or f"{{{{{line.by}}}}}",
        "range": True,
        "instant": False,
        **({"format": "heatmap"} if declared.kind == "heatmap" else {}),
    }


def _description(declared: Panel) -> str:
    """Include reasons for missing data: Grafana shows only "No data"."""
    if declared.needs:
        why = f"Requires {declared.needs}."
    else:
        why = f"Requires {declared.metric} ({declared.since})."
    return f"{declared.about}\n\n{why} {declared.empty}"


def _series(declared: Panel) -> Object:
    stacked = declared.kind in ("stacked", "bars")
    custom: Object = {
        "drawStyle": "bars" if declared.kind == "bars" else "line",
        "lineInterpolation": "linear",
        "lineWidth": 1 if stacked else 2,
        "fillOpacity": 30 if stacked else 0,
        "showPoints": "auto",  # a value between two gaps draws no line
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
    }
    return {
        "type": "timeseries",
        "fieldConfig": {"defaults": _defaults(declared) | {"custom": custom}},
        "options": {
            "legend": _LEGEND | {"calcs": ["lastNotNull", "mean", "min", "max"]},
            "tooltip": {"mode": "multi", "sort": "desc", "hideZeros": declared.hides_zeros},
        },
    }


def _numbers(declared: Panel) -> Object:
    return {
        "type": "stat",
        "fieldConfig": {"defaults": _defaults(declared)},
        "options": {
            "graphMode": "area",
            "colorMode": "none",
            "justifyMode": "auto",
            "textMode": "value_and_name",
            "wideLayout": True,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        },
    }


def _heatmap(declared: Panel) -> Object:
    """Buckets are cumulative; Grafana separates them in queries of format heatmap."""
    return {
        "type": "heatmap",
        "fieldConfig": {"defaults": {}},
        "options": {
            "calculate": False,
            "cellGap": 1,
            "color": {
                "mode": "scheme",
                "scheme": "Cividis",
                "fill": "dark-blue",
                "scale": "exponential",
                "exponent": 0.5,
                "steps": 64,
                "reverse": False,
            },
            "cellValues": {"unit": "short"},
            "rowsFrame": {"layout": "auto"},
            "showValue": "never",
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": UNITS[declared.unit]},
            "legend": {"show": True},
            "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
            "filterValues": {"le": 1e-9},
        },
    }


_KINDS: Final = {"numbers": _numbers, "heatmap": _heatmap}


def _defaults(declared: Panel) -> Object:
    defaults: Object = {
        "unit": UNITS[declared.unit],
        "min": 0,
        "color": {"mode": "palette-classic-by-name"},
        "noValue": "no data",
    }
    if declared.unit == "share" and declared.of_whole:
        defaults["max"] = 1
    return defaults


def _make_override(key: str, style: Style) -> Object:
    properties: list[Object] = [
        {"id": "displayName", "value": style.label},
        {"id": "color", "value": {"mode": "fixed", "fixedColor": style.colour}},
    ]
    if style.dash in _DASHES:
        line = {"fill": "dash", "dash": _DASHES[style.dash]}
        properties.append({"id": "custom.lineStyle", "value": line})
    return {"matcher": {"id": "byName", "options": key}, "properties": properties}


NAMESPACE, ENDPOINT, WORKER = "grafana-namespace", "grafana-endpoint", ANY_WORKER
ONE: Final = Scope(ENDPOINT, NAMESPACE, worker=WORKER)
FLEET: Final = Scope(among=(ENDPOINT,))
# Two sets of placeholder times; no board has such a step or range.
_PROBES: Final = (Times(1_000_003, 7_000_009), Times(2_000_003, 9_000_011))
FACTORS: Final = {
    "worker_usd_hour": "emberline_worker_usd_hour",
    "saved_usd_token": "emberline_saved_usd_per_token",
}


class NotExportable(ValueError):
    """The query has no Grafana equivalent."""


def export_line(line: PanelLine, *, one: bool) -> str:
    expression = make_template(line.query, one=one)
    if not line.factor:
        return expression
    factor = f"max by (endpoint_name) ({FACTORS[line.factor]})"
    return f"({expression}) * on (endpoint_name) group_left () {factor}"


def make_template(query: str, *, one: bool) -> str:
    scope = ONE if one else FLEET
    variables = {
        _with_variables(queries.render_plain(query, scope, times), times) for times in _PROBES
    }
    if len(variables) > 1:
        raise NotExportable(f"{query}: {' is not '.join(sorted(variables))}")
    return variables.pop()


def _with_variables(text: str, times: Times) -> str:
    for number, lasting, bare in (
        (times.rate_s, "$__rate_interval", "($__rate_interval_ms / 1000)"),
        (times.range_s, "$__range", "$__range_s"),
    ):
        text = re.sub(rf"\b{number}s\b", lasting, text)
        text = re.sub(rf"\b{number}\b", bare, text)
    # A multi-value variable is a pattern. Only series that name their endpoint have a namespace.
    text = re.sub(rf'\b(\w+)=~?"{WORKER}"', r'\1=~"$worker"', text)
    text = re.sub(
        rf'\b(endpoint(?:_name)?)=~"{ENDPOINT}"', r'\1=~"$endpoint",namespace=~"$namespace"', text
    )
    for value, variable in (
        (NAMESPACE, "$namespace"),
        (ENDPOINT, "$endpoint"),
        (WORKER, "$worker"),
    ):
        text = text.replace(value, variable)
    return text
