from __future__ import annotations

from django.apps import AppConfig


class CachetierConfig(AppConfig):
    name = "cachetier"
    verbose_name = "Cache tiers"

    def ready(self) -> None:
        from cachetier import actions, selectors
        from cachetier.models import CacheTierStatus
        from console.audit.targets import TargetKind, register_kind
        from console.core import outbound, uses
        from console.system import changes
        from console.web.shell import navigation
        from console.web.shell.search import register_finder

        changes.register_handler("cache-tier", actions.nudge_by_name, CacheTierStatus)
        register_finder(selectors.find_tiers)
        register_kind(TargetKind("cache-tier", "cachetier:tier", selectors.existing))

        navigation.register_item(
            navigation.NavItem("Cache tiers", "cachetier:tiers", "stack-2", 64)
        )
        uses.register("cluster", selectors.tiers_by_cluster)
        outbound.register_admin_addresses(
            lambda: [target.address for target in selectors.targets()]
        )
