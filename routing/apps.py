from __future__ import annotations

from django.apps import AppConfig


class RoutingConfig(AppConfig):
    name = "routing"
    verbose_name = "Routing"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.conf import settings

        from console.provisioners import registry
        from console.provisioners.base import Provisioner
        from console.web import navigation
        from endpoints.commandline import parts
        from endpoints.components import register
        from routing import commandline
        from routing.component import RouterComponent

        def provisioner() -> Provisioner:
            return registry.get(settings.EMBERLINE.provisioner, settings.EMBERLINE.var)

        register(RouterComponent(provisioner))
        parts.register("doctor", commandline)
        navigation.register(navigation.NavItem("Routing", "routing:index", "route", 30))
