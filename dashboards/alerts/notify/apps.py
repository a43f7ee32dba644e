from __future__ import annotations

from django.apps import AppConfig


class NotifyConfig(AppConfig):
    name = "dashboards.alerts.notify"
    label = "notify"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.system import rounds
        from dashboards.alerts import sections
        from dashboards.alerts.notify import health

        rounds.register_round(health.as_round)
        sections.register(sections.AlertsSection("Silences", "notify:silences", 30))
        sections.register(sections.AlertsSection("Receivers", "notify:receivers", 40))
        sections.register(sections.AlertsSection("History", "notify:history", 50))
