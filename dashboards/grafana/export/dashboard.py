"""Export boards as Grafana dashboards, one for many endpoints and one for a single endpoint, with
rules and Grafana's provisioning.

Uids are stable: an import replaces the previous version.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from dashboards.boards.panels import BOARDS
from dashboards.boards.panels.declarations import Board, Panel
from dashboards.boards.panels.styles import RED
from dashboards.grafana.export import panel
from dashboards.grafana.export.panel import DATASOURCE, Object
from dashboards.prometheus.config import recording_rules

SCHEMA_VERSION: Final = 39  # of Grafana 10.4; newer versions migrate it on load
_TAG: Final = "emberline"
_WIDTH, _HEIGHT, _LOW = 24, 9, 5
_LINK: Final[Object] = {
    "icon": "dashboard",
    "tooltip": "",
    "tags": [],
    "asDropdown": False,
    "targetBlank": False,
    "includeVars": False,
    "keepTime": False,
}

# Constant timestamp of zip entries, so that equal exports have equal bytes.
_ZIP_DATE: Final = (1980, 1, 1, 0, 0, 0)

_YAML: Final = "application/yaml"
_PROVIDER: Final = """\
# For Grafana's provisioning/dashboards; put the folder dashboards at `path`.
apiVersion: 1
providers:
  - name: emberline
    folder: Emberline
    type: file
    allowUiUpdates: false
    updateIntervalSeconds: 30
    options: {path: /var/lib/grafana/dashboards/emberline}
"""


@dataclass(frozen=True, slots=True)
class DashboardExport:
    """A board for one endpoint or for many."""

    board: Board
    one: bool

    @property
    def scope(self) -> str:
        return "endpoint" if self.one else "fleet"

    @property
    def uid(self) -> str:
        return f"emberline-{self.scope}-{self.board.key}"

    @property
    def title(self) -> str:
        return f"Emberline / {self.scope.capitalize()} / {self.board.title}"

    @property
    def panels(self) -> tuple[Panel, ...]:
        return self.board.panels(one=self.one)

    @property
    def panel_count(self) -> int:
        return len(self.panels)


def list_exports() -> tuple[DashboardExport, ...]:
    """Return all dashboards: those for many endpoints first, in tab order."""
    return tuple(
        DashboardExport(board, of_one)
        for of_one in (False, True)
        for board in BOARDS.values()
        if board.panels(one=of_one)
    )


def find_export(uid: str) -> DashboardExport | None:
    return next((export for export in list_exports() if export.uid == uid), None)


def make_dashboard(wanted: DashboardExport, console_url: str = "") -> Object:
    """`console_url`: base of links back to the console; "" omits them."""
    return {
        "uid": wanted.uid,
        "title": wanted.title,
        "description": wanted.board.about,
        "tags": [_TAG, "llm", "kv-cache"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "graphTooltip": 1,  # shared crosshair, as in the console
        "timezone": "utc",
        "time": {"from": "now-1h", "to": "now"},
        "refresh": "30s",
        "links": _links(wanted, console_url),
        "templating": {"list": list(_variables(one=wanted.one))},
        "annotations": {"list": [_alerts()]},
        "panels": list(_place_panel(wanted)),
    }


def _links(wanted: DashboardExport, console_url: str) -> list[Object]:
    objects: list[Object] = [
        _LINK
        | {"title": "Emberline's boards", "type": "dashboards", "tags": [_TAG], "asDropdown": True}
        | {"icon": "external link", "includeVars": True, "keepTime": True}
    ]
    if console_url:
        whose = "endpoints/${endpoint}/" if wanted.one else ""
        when = "from=${__from:date:seconds}&to=${__to:date:seconds}"
        url = f"{console_url.rstrip('/')}/dashboards/{whose}{wanted.board.key}/?{when}"
        objects.append(
            _LINK
            | {"title": "In Emberline", "type": "link", "icon": "dashboard", "url": url}
            | {"targetBlank": True}
        )
    return objects


def _variables(*, one: bool) -> Iterator[Object]:
    yield {
        "name": "datasource",
        "label": "Prometheus",
        "type": "datasource",
        "query": "prometheus",
        "hide": 0,
    }
    selector = 'up{endpoint_name!=""'
    yield _variable("namespace", "Namespace", selector + "}", "namespace", several=not one)
    match = "namespace" + ("=" if one else "=~") + '"$namespace"'
    yield _variable(
        "endpoint", "Endpoint", f"{selector},{match}}}", "endpoint_name", several=not one
    )
    if one:
        of_one = 'up{job="vllm",namespace="$namespace",endpoint_name="$endpoint"}'
        # Include series without a worker label: router metrics concern all workers.
        yield _variable("worker", "Worker", of_one, "pod", several=True, every=".*")


def _variable(
    name: str, label: str, series: str, of: str, *, several: bool, every: str = ".+"
) -> Object:
    query = f"label_values({series}, {of})"
    variable: Object = {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "definition": query,
        "query": {"qryType": 1, "query": query, "refId": f"Variable-{name}"},
        "refresh": 2,  # on time range change: endpoints come and go
        "sort": 1,
        "hide": 0,
        "multi": several,
        "includeAll": several,
    }
    if several:
        variable |= {"allValue": every, "current": {"text": "All", "value": "$__all"}}
    return variable


def _alerts() -> Object:
    return {
        "name": "Alerts",
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": RED,
        "expr": 'ALERTS{alertstate="firing",endpoint=~"$endpoint|"}',
        "titleFormat": "{{alertname}}",
        "textFormat": "{{endpoint}} {{severity}}",
        "tagKeys": "severity",
        "step": "60s",
        "useValueForTime": False,
    }


def _place_panel(wanted: DashboardExport) -> Iterator[Object]:
    number = y = 0
    for section in wanted.board.sections(one=wanted.one):
        if section.title:
            number += 1
            yield _row(section.title, number, y)
            y += 1
        x = 0
        tallest = 0
        for declared in section.panels:
            number += 1
            width, height = _size(declared)
            if x + width > _WIDTH:
                x, y, tallest = 0, y + tallest, 0
            made = panel.make_panel(declared, one=wanted.one)
            _link_lines(made, declared, wanted)
            place = {"x": x, "y": y, "w": width, "h": height}
            yield {"id": number, "gridPos": place} | made
            x, tallest = x + width, max(tallest, height)
        y += tallest


def _row(title: str, number: int, y: int) -> Object:
    place = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
    return {
        "id": number,
        "type": "row",
        "title": title,
        "collapsed": False,
        "gridPos": place,
        "panels": [],
    }


def _size(declared: Panel) -> tuple[int, int]:
    if declared.kind == "numbers":
        return (_WIDTH if len(declared.lines) > 2 else _WIDTH // 2), _LOW
    return _WIDTH // 2, _HEIGHT


def _link_lines(made: Object, declared: Panel, wanted: DashboardExport) -> None:
    label = next((line.by for line in declared.lines if line.by), "")
    if not declared.drill or not label or not wanted.board.one:
        return
    chosen: dict[str, str] = {f"var-{declared.drill}": f"${{__field.labels.{label}}}"}
    query = urlencode(chosen, safe="${}._")
    parameters = "${datasource:queryparam}&${namespace:queryparam}&${__url_time_range}"
    if declared.drill == "worker":
        parameters = f"${{endpoint:queryparam}}&{parameters}"
    uid = DashboardExport(wanted.board, one=True).uid
    links: list[dict[str, Any]] = made["fieldConfig"]["defaults"].setdefault("links", [])
    url = f"/d/{uid}?{query}&{parameters}"
    links.append(_LINK | {"title": f"This {declared.drill}", "type": "link", "url": url})


@dataclass(frozen=True, slots=True)
class ExportFile:
    path: str
    text: str
    media_type: str


def board(wanted: DashboardExport, console_url: str = "") -> ExportFile:
    text = json.dumps(make_dashboard(wanted, console_url), indent=1, ensure_ascii=False) + "\n"
    return ExportFile(f"dashboards/{wanted.uid}.json", text, "application/json")


def make_files(console_url: str, alert_rules: str) -> tuple[ExportFile, ...]:
    return (
        *(board(export, console_url) for export in list_exports()),
        ExportFile("grafana-provider.yaml", _PROVIDER, _YAML),
        ExportFile("rules/emberline-alerts.yml", alert_rules, _YAML),
        ExportFile("rules/emberline-recording.yml", recording_rules.render(), _YAML),
    )


def make_zip(found: tuple[ExportFile, ...]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in found:
            entry = zipfile.ZipInfo(f"emberline-grafana/{file.path}", _ZIP_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.text)
    return made.getvalue()
