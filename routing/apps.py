from __future__ import annotations

from django.apps import AppConfig

_TABS = (
    ("Playground", "playground:endpoint", "message", 13, "Overview"),
    ("Decisions", "routing:endpoint", "route", 20, "Explain"),
    ("Dry run", "routing:explain", "test-pipe", 21, "Explain"),
    ("Prefixes", "routing:prefixes", "map", 22, "Explain"),
    ("Strategy", "routing:strategy", "switch-horizontal", 30, "Improve"),
    ("Recording", "routing:traces", "history", 34, "Improve"),
    ("Doctor", "routing:doctor", "checks", 40, "Health"),
    ("KV index", "routing:kv", "database", 41, "Health"),
    ("Routers", "routing:routers", "router", 42, "Health"),
)


class RoutingConfig(AppConfig):
    name = "routing"
    verbose_name = "Routing"

    def ready(self) -> None:
        from urllib.parse import urlsplit

        from django.conf import settings

        from console.clusters import selectors as clusters
        from console.core import outbound
        from console.provisioners.base import Provisioner
        from console.web.shell import navigation
        from console.web.shell.search import register_finder, register_pages
        from endpoints import selectors
        from endpoints.lifecycle.components import EndpointFacts, register
        from routing import key_usage, search
        from routing.canary import selectors as canary_selectors
        from routing.deployment.component import RouterComponent

        def provisioner(endpoint: EndpointFacts) -> Provisioner:
            placement = endpoint.spec.placement
            return clusters.provisioner(placement.cluster, endpoint.cluster_namespace)

        outbound.register_admin_addresses(
            lambda: [
                urlsplit(url).netloc
                for endpoint in selectors.endpoints()
                for url in key_usage.admin_urls(endpoint)
            ]
        )
        register(
            RouterComponent(
                provisioner,
                lambda: settings.EMBERLINE.engine_image,
                lambda: str(settings.EMBERLINE.l2_secrets),
                canary=canary_selectors.router_settings,
                state_store=lambda: settings.EMBERLINE.state_store,
                router_path=lambda: settings.EMBERLINE.router_path,
            )
        )
        register_finder(search.find)
        register_pages(
            navigation.NavItem("Routing of all endpoints", "routing:index", "route", 0),
            navigation.NavItem("Playground", "playground:index", "message", 0, role="operator"),
        )
        navigation.register_tabs("endpoint", *_TABS)
