from __future__ import annotations

from django.apps import AppConfig


class MoneyConfig(AppConfig):
    name = "dashboards.money"
    label = "money"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.telemetry import meters
        from console.web import banners
        from dashboards.money import banner, exposed

        banners.register(banner.budget_banner)
        meters.also("web", exposed.Exposed())
