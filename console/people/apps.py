from __future__ import annotations

from django.apps import AppConfig


class PeopleConfig(AppConfig):
    name = "console.people"
    label = "people"
    verbose_name = "Users and teams"

    def ready(self) -> None:
        from console.accounts import selectors
        from console.audit.targets import TargetKind, register_kind
        from console.people import search
        from console.web.shell import navigation
        from console.web.shell.search import register_finder, register_pages

        register_kind(TargetKind("team", "accounts:team", selectors.existing_teams, "slug"))
        register_finder(search.find_teams)
        register_finder(search.find_users)
        register_pages(
            navigation.NavItem("Teams", "accounts:teams", "users", 0),
            navigation.NavItem("API tokens", "accounts:tokens", "key", 0, role="admin"),
            navigation.NavItem(
                "Profile, light and dark theme", "accounts:profile", "user-circle", 0
            ),
        )
        navigation.register_item(
            navigation.NavItem("Users and teams", "accounts:people", "users", 85)
        )
