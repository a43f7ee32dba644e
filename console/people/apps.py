from __future__ import annotations

from django.apps import AppConfig


class PeopleConfig(AppConfig):
    name = "console.people"
    label = "people"
    verbose_name = "Access pages"

    def ready(self) -> None:
        from console.web.shell import navigation

        navigation.register_item(navigation.NavItem("Access", "accounts:people", "users", 85))
