from __future__ import annotations

from django.apps import AppConfig


class DashboardsConfig(AppConfig):
    name = "dashboards"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.telemetry import meters
        from console.web import tabs
        from console.web.shell import cards, navigation
        from dashboards import card, routes
        from dashboards.cost import exposed
        from dashboards.overview import extensions
        from dashboards.prometheus import targets

        routes.register()
        navigation.register(navigation.NavItem("Overview", "dashboards:overview", "home", 10))
        navigation.register(navigation.NavItem("Dashboards", "dashboards:fleet", "chart-line", 50))
        navigation.register(navigation.NavItem("Costs", "dashboards:costs", "scale", 55))
        tabs.register(tabs.Tab("endpoint", "Metrics", "dashboards:endpoint", "chart-line", 40))
        extensions.connect()
        cards.register(card.CARD)
        meters.also("web", exposed.Prices())
        meters.also("web", targets.Transitions())
