from __future__ import annotations

from django.apps import AppConfig


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
        from console.web.shell.search import register_finder
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
        navigation.register_item(navigation.NavItem("Routing", "routing:index", "route", 30))
        navigation.register_tab(
            navigation.Tab("endpoint", "Routing", "routing:endpoint", "route", 50, "Traffic")
        )
        navigation.register_item(
            navigation.NavItem("Playground", "playground:index", "message", 25, role="operator")
        )
        navigation.register_tab(
            navigation.Tab(
                "endpoint", "Playground", "playground:endpoint", "message", 60, "Traffic"
            )
        )
