from __future__ import annotations

from django.apps import AppConfig


class NotifyConfig(AppConfig):
    name = "dashboards.alerts.alertmanager"
    label = "notify"

    def ready(self) -> None:
        from console.audit.targets import TargetKind, register_kind
        from console.system import rounds
        from console.web.shell.navigation import NavItem
        from console.web.shell.search import register_finder, register_pages
        from dashboards.alerts.alertmanager import selectors, status

        rounds.register_round(status.as_round)
        register_finder(selectors.find_receivers)
        register_kind(TargetKind("receiver", "notify:receiver", selectors.existing_receivers))
        register_pages(
            NavItem("Alert receivers", "notify:receivers", "send", 0),
            NavItem("Silences", "notify:silences", "clock-pause", 0),
        )
