from __future__ import annotations

from django.apps import AppConfig


class SystemConfig(AppConfig):
    name = "console.system"
    label = "system"
    verbose_name = "System"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.system import preflight, rounds
        from console.web import navigation

        preflight.register(rounds.verdicts)

        navigation.register(navigation.NavItem("System", "system:processes", "activity", 95))
