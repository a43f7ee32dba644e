from __future__ import annotations

from django.apps import AppConfig


class AlertObjectsConfig(AppConfig):
    name = "dashboards.alerts.cluster_objects"
    label = "alert_objects"
    verbose_name = "Alerts in clusters"

    def ready(self) -> None:
        from console.clusters import related_objects
        from console.core import uses
        from dashboards.alerts.cluster_objects import selectors

        uses.register("cluster", selectors.clusters_in_use)
        uses.register("rights", selectors.required_permissions)
        related_objects.register_related(selectors.related_object)
