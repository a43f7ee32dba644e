from __future__ import annotations

from django.apps import AppConfig


class DashboardsConfig(AppConfig):
    name = "dashboards"

    def ready(self) -> None:
        from console.telemetry import meters
        from console.web.shell import cards, navigation
        from dashboards.boards import page
        from dashboards.costs import metrics
        from dashboards.overview import extensions
        from dashboards.prometheus import targets

        page.register_board_converter()
        navigation.register_item(navigation.NavItem("Overview", "dashboards:overview", "home", 10))
        navigation.register_item(
            navigation.NavItem("Dashboards", "dashboards:fleet", "chart-line", 50)
        )
        navigation.register_item(navigation.NavItem("Costs", "dashboards:costs", "scale", 55))
        navigation.register_tab(
            navigation.Tab(
                "endpoint", "Dashboard", "dashboards:endpoint", "chart-line", 20, "Observability"
            )
        )
        extensions.register_columns()
        cards.register_card(extensions.CARD)
        meters.add_metrics("web", metrics.PriceMetrics())
        meters.add_metrics("web", targets.Transitions())
