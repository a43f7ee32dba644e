from __future__ import annotations

from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "dashboards.alerts.settings"
    label = "alerting"

    def ready(self) -> None:
        from console.audit.targets import TargetKind, register_kind
        from console.system import rounds
        from console.web.shell import navigation
        from console.web.shell.search import register_finder, register_pages
        from dashboards.alerts.settings import rule_file, search, url_names

        url_names.register()
        rounds.register_round(rule_file.as_round)
        rounds.register_round(rule_file.storage_round)
        register_finder(search.find)
        register_kind(TargetKind("alert-rule", "alerting:rule", search.existing, "rule"))
        register_pages(navigation.NavItem("Alert rules", "alerting:rules", "list-details", 0))
        navigation.register_item(navigation.NavItem("Alerts", "alerting:firing", "flame", 52))
        navigation.register_tabs(
            "alerts",
            ("Active", "alerting:firing", "flame", 10, "Alerts"),
            ("History", "alerting:timeline", "history", 11, "Alerts"),
            ("Rules", "alerting:rules", "list-details", 20, "Rules"),
            ("Clusters", "alert_objects:list", "topology-star-3", 21, "Rules"),
            ("Silences", "notify:silences", "clock-pause", 30, ""),
            ("Receivers", "notify:receivers", "send", 40, ""),
        )
