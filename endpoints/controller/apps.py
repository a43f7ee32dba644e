from __future__ import annotations

from django.apps import AppConfig


class ControllerConfig(AppConfig):
    name = "endpoints.controller"
    label = "controller"
    verbose_name = "Followed objects"

    def ready(self) -> None:
        from console.clusters import related_objects
        from endpoints import owners
        from endpoints.controller import selectors

        owners.register(selectors.owner_of)
        related_objects.register_users(selectors.cluster_users)
        related_objects.register_follows(selectors.namespaces)
