from __future__ import annotations

from django.apps import AppConfig


class TracesConfig(AppConfig):
    name = "dashboards.insight.traces"
    label = "traces"
    verbose_name = "Recorded traffic"

    def ready(self) -> None:
        from console.web.shell import navigation

        navigation.register_tabs(
            "endpoint", ("Recording", "traces:endpoint", "history", 34, "Improve")
        )
