"""What of boards and rules a person may take to a Grafana and a Prometheus of their own.

Promises that rules with numbers set for single endpoints, and rules which somebody wrote, go to
people with a role everywhere only: they may name what another team has. Everybody else gets the
rules every console starts with.
"""

from __future__ import annotations

from console.accounts.permissions import Somebody, allows
from dashboards.alerts import rules
from dashboards.alerts.settings import selectors
from dashboards.grafana import export
from dashboards.grafana.export import File


def files(viewer: Somebody, console_url: str, *, recorded: bool = False) -> tuple[File, ...]:
    return export.files(console_url, alert_rules(viewer), recorded=recorded)


def alert_rules(viewer: Somebody) -> str:
    """A rule file."""
    return rules.render(selectors.settings()) if allows(viewer, "viewer") else rules.render()
