from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.conf import settings


class WebConfig(AppConfig):
    name = "console.web"
    label = "web"
    verbose_name = "Page shell"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.web import (
            cards,
            checks,  # noqa: F401  (registers them)
            finding,
            installation,
            navigation,
            pages_found,
            routes,  # noqa: F401  (registers them)
        )

        cards.register(installation.CARD)
        finding.register(pages_found.find)
        navigation.register(navigation.NavItem("Settings", "web:settings", "settings", 90))

        # Makes our Celery application the current one in every process that may publish a task.
        import_module(settings.CELERY_APP)
