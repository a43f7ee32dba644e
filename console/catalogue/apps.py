from __future__ import annotations

from django.apps import AppConfig


class CatalogueConfig(AppConfig):
    name = "console.catalogue"
    label = "catalogue"
    verbose_name = "Instance types"

    def ready(self) -> None:
        from console.catalogue import instance_types
        from console.web.shell import cards, navigation

        cards.register_card(instance_types.CARD)

        navigation.register_item(navigation.NavItem("Instance types", "catalogue:list", "cpu", 62))
