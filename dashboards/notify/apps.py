from __future__ import annotations

from django.apps import AppConfig


class NotifyConfig(AppConfig):
    name = "dashboards.notify"
    label = "notify"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.system import rounds
        from dashboards.alerting import sections
        from dashboards.notify import standing

        rounds.register(standing.as_round)
        sections.register(sections.Section("Silences", "notify:silences", 30))
        sections.register(sections.Section("Receivers", "notify:receivers", 40))
        sections.register(sections.Section("History", "notify:history", 50))
