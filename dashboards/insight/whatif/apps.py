from __future__ import annotations

from django.apps import AppConfig


class WhatIfConfig(AppConfig):
    name = "dashboards.insight.whatif"
    label = "whatif"
    verbose_name = "What-if"

    def ready(self) -> None:
        from console.web.shell import navigation

        navigation.register_tabs("endpoint", ("What-if", "whatif:endpoint", "scale", 32, "Improve"))
