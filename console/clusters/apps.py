from __future__ import annotations

from django.apps import AppConfig


class ClustersConfig(AppConfig):
    name = "console.clusters"
    label = "clusters"
    verbose_name = "Clusters"

    def ready(self) -> None:
        from console.audit.targets import TargetKind, register_kind
        from console.clusters import actions, selectors, views
        from console.vault import key_rotation
        from console.web.shell import cards, navigation
        from console.web.shell.search import register_finder

        register_finder(views.find)
        register_kind(TargetKind("cluster", "clusters:cluster", selectors.existing))
        key_rotation.register(actions.SEALED)
        cards.register_card(views.CARD)

        item = navigation.NavItem("Clusters", "clusters:list", "topology-star-3", 60)
        navigation.register_item(item)
