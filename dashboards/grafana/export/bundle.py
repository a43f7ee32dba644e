"""Files of the export: dashboards, rules and Grafana's provisioning."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from typing import Final

from dashboards.grafana.export.dashboard import DashboardExport, list_exports, make_dashboard
from dashboards.prometheus.config import recording_rules

# Constant timestamp of zip entries, so that equal exports have equal bytes.
_ZIP_DATE: Final = (1980, 1, 1, 0, 0, 0)

_YAML: Final = "application/yaml"
_PROVIDER: Final = """\
# For Grafana's provisioning/dashboards; put the folder dashboards where path says.
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
class ExportFile:
    path: str
    text: str
    media_type: str


def board(wanted: DashboardExport, console_url: str = "") -> ExportFile:
    text = json.dumps(make_dashboard(wanted, console_url), indent=1, ensure_ascii=False) + "\n"
    return ExportFile(f"dashboards/{wanted.uid}.json", text, "application/json")


def make_files(
    console_url: str, alert_rules: str, *, recorded: bool = False
) -> tuple[ExportFile, ...]:
    """`recorded`: use and include the recording rules for large fleets."""
    return (
        *(board(one, console_url) for one in list_exports(recorded=recorded)),
        ExportFile("grafana-provider.yaml", _PROVIDER, _YAML),
        ExportFile("rules/emberline-alerts.yml", alert_rules, _YAML),
        ExportFile("rules/emberline-recording.yml", recording_rules.render(), _YAML),
        *([_fleet_rules()] if recorded else ()),
    )


def _fleet_rules() -> ExportFile:
    text = recording_rules.render(recording_rules.groups(recording_rules.FLEET_GROUPS))
    return ExportFile("rules/emberline-large-fleet.yml", text, _YAML)


def make_zip(found: tuple[ExportFile, ...]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in found:
            entry = zipfile.ZipInfo(f"emberline-grafana/{file.path}", _ZIP_DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.text)
    return made.getvalue()
