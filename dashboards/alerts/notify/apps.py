from __future__ import annotations

from django.apps import AppConfig


class NotifyConfig(AppConfig):
    name = "dashboards.alerts.notify"
    label = "notify"

    def ready(self) -> None:
        from console.system import rounds
        from dashboards.alerts.notify import health

        rounds.register_round(health.as_round)
