from __future__ import annotations

from django.apps import AppConfig


class AlertingConfig(AppConfig):
    name = "dashboards.alerting"
    label = "alerting"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.system import rounds
        from console.web import navigation
        from dashboards.alerting import loading, routes, sections

        routes.register()
        rounds.register(loading.as_round)
        rounds.register(loading.storage_round)
        navigation.register(navigation.NavItem("Alerts", "alerting:firing", "flame", 52))
        sections.register(sections.Section("Firing", "alerting:firing", 10))
        sections.register(sections.Section("Rules", "alerting:rules", 20))
