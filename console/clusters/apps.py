from __future__ import annotations

from django.apps import AppConfig


class ClustersConfig(AppConfig):
    name = "console.clusters"
    label = "clusters"
    verbose_name = "Clusters"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.clusters import (
            actions,
            checks,  # noqa: F401  (registers them)
            finding,
            rekeying,
        )
        from console.web import cards, navigation
        from console.web.finding import register

        register(finding.find)
        rekeying.register(actions.SEALED)
        cards.register(finding.CARD)

        item = navigation.NavItem("Clusters", "clusters:list", "topology-star-3", 60)
        navigation.register(item)
