from __future__ import annotations

from django.apps import AppConfig


class AlertObjectsConfig(AppConfig):
    name = "dashboards.alerts.cluster_objects"
    label = "alert_objects"
    verbose_name = "Alerts in clusters"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.clusters import related_objects
        from dashboards.alerts import sections
        from dashboards.alerts.cluster_objects import selectors

        related_objects.register_usage(selectors.users)
        related_objects.register_parts(selectors.parts)
        related_objects.register(selectors.line)
        sections.register(sections.AlertsSection("Clusters", "alert_objects:list", 25))
