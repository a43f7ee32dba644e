from __future__ import annotations

from importlib import import_module

from django.apps import AppConfig
from django.conf import settings


class WebConfig(AppConfig):
    name = "console.web"
    label = "web"
    verbose_name = "Page shell"

    def ready(self) -> None:
        from console.web import checks, url_converters  # noqa: F401
        from console.web.shell import cards, navigation, search

        cards.register_card(cards.CARD)
        search.register_finder(search.find)
        search.register_pages(
            navigation.NavItem("API reference", "api:docs", "code", 0),
            navigation.NavItem("API explorer", "api:explorer", "terminal-2", 0),
            navigation.NavItem("About", "web:about", "info-circle", 0),
        )
        navigation.register_item(navigation.NavItem("Settings", "web:settings", "settings", 90))

        # Sets our Celery app as current in every process that publishes tasks.
        import_module(settings.CELERY_APP)
