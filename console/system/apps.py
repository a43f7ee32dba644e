from __future__ import annotations

from django.apps import AppConfig


class SystemConfig(AppConfig):
    name = "console.system"
    label = "system"
    verbose_name = "System"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.system import audit_round, preflight, rounds, selectors
        from console.telemetry import meters
        from console.web.shell import context, navigation

        preflight.register(rounds.verdicts)
        rounds.register(audit_round.as_round)
        context.register(selectors.banner)
        meters.also("web", selectors.expose)
        navigation.register(navigation.NavItem("System", "system:processes", "activity", 95))
