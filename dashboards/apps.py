from __future__ import annotations

from django.apps import AppConfig


class DashboardsConfig(AppConfig):
    name = "dashboards"

    def ready(self) -> None:
        from console.telemetry import meters
        from console.web.shell import cards, navigation
        from console.web.shell.search import register_pages
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
        navigation.register_tabs(
            "endpoint",
            ("Misses", "dashboards:misses", "help", 23, "Explain"),
            ("Canary", "dashboards:canary", "flask", 31, "Improve"),
            ("Boards", "dashboards:endpoint", "chart-line", 50, ""),
        )
        navigation.register_tabs(
            "costs",
            ("Recent", "dashboards:costs", "scale", 10, ""),
            ("Misses", "dashboards:miss_groups", "help", 20, ""),
            ("Months", "money:reports", "calendar", 30, "Months and budgets"),
            ("Budgets", "money:budgets", "gauge", 31, "Months and budgets"),
            ("Cache tiers", "money:tiers", "database", 40, "Prices"),
            ("Calibration", "dashboards:calibrations", "adjustments", 41, "Prices"),
        )
        register_pages(
            navigation.NavItem("Costs by month", "money:reports", "calendar", 0),
            navigation.NavItem("Budgets", "money:budgets", "gauge", 0),
            navigation.NavItem("Cache tier prices", "money:tiers", "scale", 0),
            navigation.NavItem("Grafana dashboards", "dashboards:grafana", "download", 0),
            navigation.NavItem("Metrics sources", "metrics_sources:list", "database", 0),
        )
        extensions.register_columns()
        cards.register_card(extensions.CARD)
        meters.add_metrics("web", metrics.PriceMetrics())
        meters.add_metrics("web", targets.Transitions())
        meters.add_metrics("web", targets.Phases())
