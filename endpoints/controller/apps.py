from __future__ import annotations

from django.apps import AppConfig


class ControllerConfig(AppConfig):
    name = "endpoints.controller"
    label = "controller"
    verbose_name = "Followed objects"

    def ready(self) -> None:
        from console.core import uses
        from endpoints.controller import selectors

        uses.register("cluster", selectors.cluster_users)
        uses.register("followed", selectors.namespaces)
