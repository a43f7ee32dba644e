from __future__ import annotations

from django.apps import AppConfig

_TABS = (
    ("Overview", "endpoints:detail", "server", 10, "Overview"),
    ("Workers", "endpoints:workers", "cpu", 11, "Overview"),
    ("Cache", "endpoints:cache", "database", 12, "Overview"),
    ("Logs", "endpoints:logs", "file-text", 43, "Health"),
    ("Events", "endpoints:events", "history", 44, "Health"),
    ("Spec", "endpoints:configuration", "adjustments", 60, "Configuration"),
    ("Revisions", "endpoints:revisions", "git-branch", 61, "Configuration"),
    ("Manifest", "endpoints:manifest", "file-text", 62, "Configuration"),
    ("Settings", "endpoints:settings", "settings", 63, "Configuration"),
    ("Access", "endpoints:access", "key", 70, ""),
)


class EndpointsConfig(AppConfig):
    name = "endpoints"
    verbose_name = "Endpoints"

    def ready(self) -> None:
        import endpoints.tasks  # noqa: F401 (registers the task that `actions.nudge` looks up)
        from console.accounts import gate
        from console.audit import targets as audit_targets
        from console.core import uses
        from console.system import changes
        from console.web import url_converters
        from console.web.shell import cards, context, navigation
        from console.web.shell.search import register_finder, register_pages
        from endpoints import actions, selectors, shell_entries, teams
        from endpoints.models import EndpointStatus
        from endpoints.placement import cache_tiers, provisioner
        from endpoints.shell_entries import simulated_banner

        uses.register("team", teams.endpoints_by_team)
        gate.register_kind(
            url_converters.ENDPOINT, gate.GateKind(teams.find, teams.names, "endpoints:list")
        )
        audit_targets.register_kind(
            audit_targets.TargetKind(
                "endpoint",
                "endpoints:detail",
                selectors.existing,
                converter=url_converters.ENDPOINT,
            )
        )
        navigation.register_item(navigation.NavItem("Endpoints", "endpoints:list", "server", 20))
        navigation.register_item(navigation.NavItem("Models", "models:list", "box", 61))
        navigation.register_item(navigation.NavItem("Inference keys", "keys:index", "key", 83))
        register_finder(shell_entries.find)
        register_finder(shell_entries.find_workers)
        register_finder(shell_entries.find_keys)
        register_pages(
            navigation.NavItem("Create endpoint", "endpoints:new", "plus", 0, role="operator"),
            navigation.NavItem("Import manifests", "endpoints:import", "upload", 0, "operator"),
            navigation.NavItem("Followed namespaces", "endpoints:followed", "eye", 0),
        )
        cards.register_card(shell_entries.CARD)
        navigation.register_tabs("endpoint", *_TABS)
        context.register_banner(simulated_banner)
        changes.register_handler("endpoint", actions.nudge_by_name, EndpointStatus)
        cache_tiers.connect()
        provisioner.connect()
