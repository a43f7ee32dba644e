from __future__ import annotations

from django.apps import AppConfig


class SystemConfig(AppConfig):
    name = "console.system"
    label = "system"
    verbose_name = "System"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.system import preflight, rounds, storage
        from console.telemetry import meters
        from console.web import banners
        from console.web.shell import navigation

        preflight.register(rounds.verdicts)
        banners.register(storage.banner)
        meters.also("web", storage.expose)
        navigation.register(navigation.NavItem("System", "system:processes", "activity", 95))
