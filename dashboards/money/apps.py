from __future__ import annotations

from django.apps import AppConfig


class MoneyConfig(AppConfig):
    name = "dashboards.money"
    label = "money"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.system import rounds
        from console.telemetry import meters
        from console.web import banners
        from dashboards.money import banner, exposed, keeping

        rounds.register(keeping.as_round)
        banners.register(banner.budget_banner)
        meters.also("web", exposed.Exposed())
