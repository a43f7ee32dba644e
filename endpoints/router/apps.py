from __future__ import annotations

from django.apps import AppConfig

_TABS = (
    ("Playground", "playground:endpoint", "message", 13, "Overview"),
    ("Decisions", "routing:endpoint", "route", 20, "Explain"),
    ("Dry run", "routing:explain", "test-pipe", 21, "Explain"),
    ("Prefixes", "routing:prefixes", "map", 22, "Explain"),
    ("Strategy", "routing:strategy", "switch-horizontal", 30, "Improve"),
    ("Doctor", "routing:doctor", "checks", 40, "Health"),
    ("KV index", "routing:kv", "database", 41, "Health"),
    ("Routers", "routing:routers", "router", 42, "Health"),
)


class RouterConfig(AppConfig):
    name = "endpoints.router"
    label = "routing"  # of its tables and migrations
    verbose_name = "Routing"

    def ready(self) -> None:
        from urllib.parse import urlsplit

        from console.core import outbound
        from console.web.shell import navigation
        from console.web.shell.search import register_finder, register_pages
        from endpoints import selectors
        from endpoints.router import key_usage, search

        outbound.register_admin_addresses(
            lambda: [
                urlsplit(url).netloc
                for endpoint in selectors.endpoints()
                for url in key_usage.admin_urls(endpoint)
            ]
        )
        register_finder(search.find)
        register_pages(
            navigation.NavItem("Routing of all endpoints", "routing:index", "route", 0),
            navigation.NavItem("Playground", "playground:index", "message", 0, role="operator"),
        )
        navigation.register_tabs("endpoint", *_TABS)
