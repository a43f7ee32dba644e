from __future__ import annotations

from django.apps import AppConfig


class EndpointsConfig(AppConfig):
    name = "endpoints"
    verbose_name = "Endpoints"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.web import banners, navigation
        from endpoints import placing, tiers
        from endpoints.banner import simulated_banner

        navigation.register(navigation.NavItem("Endpoints", "endpoints:list", "server", 20))
        banners.register(simulated_banner)
        tiers.connect()
        placing.connect()
