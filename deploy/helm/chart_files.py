"""Write the chart's files that are derived from the console: `make chart`.

Grafana boards, recording rules and alert rules stand in the code; the chart gets them at release,
and in a checkout before `helm install`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

CHART = Path(__file__).parent / "emberline"
ROOT = CHART.parents[2]
CONSOLE = "https://console.invalid"
"""Stands for the console's address, which only an installation has."""


def render() -> dict[str, str]:
    """Return the text of each file by its path in the chart. Django must be set up."""
    from console.core import yaml_reader
    from dashboards.alerts.rules import rule_file
    from dashboards.grafana.export import dashboard
    from dashboards.prometheus.config import recording_rules

    # One list for all endpoints: a rule for each would repeat every alert.
    alerts = yaml_reader.read_document(rule_file.render())["groups"]
    return {
        "files/endpoint-alerts.yaml": yaml_reader.render(alerts),
        "files/recording.yaml": yaml_reader.render(recording_rules.all_groups()),
        **{
            f"files/grafana/{board.uid}.json": dashboard.board(board, CONSOLE).text
            for board in dashboard.list_exports()
        },
    }


def write(chart: Path, files: dict[str, str]) -> None:
    """Replace the derived files of a chart."""
    for old in (chart / "files/grafana").glob("*.json"):
        old.unlink()
    for name, text in files.items():
        path = chart / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def main() -> None:
    sys.path.insert(0, str(ROOT))
    with tempfile.TemporaryDirectory() as var:
        os.environ |= {"DJANGO_SETTINGS_MODULE": "console.settings", "EMBERLINE_VAR": var}
        import django

        django.setup()
        files = render()
    write(CHART, files)
    sys.stdout.write(f"{len(files)} files of deploy/helm/emberline are written\n")


if __name__ == "__main__":
    main()
