from __future__ import annotations

from django.apps import AppConfig


class AdvisorConfig(AppConfig):
    name = "dashboards.insight.advisor"
    label = "advisor"
    verbose_name = "Advisor"

    def ready(self) -> None:
        from console.web.shell import navigation

        navigation.register_tabs("endpoint", ("Advisor", "advisor:endpoint", "wand", 33, "Improve"))
