from __future__ import annotations

from django.apps import AppConfig


class BenchmarksConfig(AppConfig):
    name = "dashboards.benchmarks"
    label = "benchmarks"

    def ready(self) -> None:
        from console.web.shell import navigation

        navigation.register_item(navigation.NavItem("Benchmarks", "benchmarks:index", "gauge", 53))
        navigation.register_tabs(
            "endpoint", ("Benchmarks", "benchmarks:endpoint", "gauge", 35, "Improve")
        )
