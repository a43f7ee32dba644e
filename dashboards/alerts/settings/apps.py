from __future__ import annotations

from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "dashboards.alerts.settings"
    label = "alerting"

    def ready(self) -> None:
        from console.system import rounds
        from console.web.shell import navigation
        from dashboards.alerts.settings import rule_file, url_names

        url_names.register()
        rounds.register_round(rule_file.as_round)
        rounds.register_round(rule_file.storage_round)
        navigation.register_item(navigation.NavItem("Alerts", "alerting:firing", "flame", 52))
