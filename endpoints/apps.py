from __future__ import annotations

from django.apps import AppConfig


class EndpointsConfig(AppConfig):
    name = "endpoints"
    verbose_name = "Endpoints"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.accounts import gate
        from console.web import banners, navigation, routes, tabs
        from endpoints import placing, teams, tiers
        from endpoints.banner import simulated_banner

        gate.register(routes.ENDPOINT, gate.Kind(teams.find, "endpoints:list"))
        navigation.register(navigation.NavItem("Endpoints", "endpoints:list", "server", 20))
        tabs.register(tabs.Tab("endpoint", "Overview", "endpoints:detail", "server", 10))
        tabs.register(tabs.Tab("endpoint", "Events", "endpoints:events", "history", 50))
        tabs.register(tabs.Tab("endpoint", "Logs", "endpoints:logs", "file-text", 60))
        banners.register(simulated_banner)
        tiers.connect()
        placing.connect()
