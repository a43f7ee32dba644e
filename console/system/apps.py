from __future__ import annotations

from django.apps import AppConfig


class SystemConfig(AppConfig):
    name = "console.system"
    label = "system"
    verbose_name = "System"

    def ready(self) -> None:
        from celery import signals

        from console.system import changes, preflight, rounds, selectors
        from console.telemetry import meters
        from console.web.shell import context, navigation

        signals.worker_ready.connect(
            changes.start_listener, weak=False, dispatch_uid="console.system.changes"
        )
        signals.worker_ready.connect(
            changes.start_watches, weak=False, dispatch_uid="console.system.watches"
        )
        preflight.register_check(rounds.round_checks)
        rounds.register_round(rounds.audit_round)
        rounds.register_round(rounds.clock_round)
        context.register_banner(selectors.disk_banner)
        meters.add_metrics("web", selectors.expose_disk)
        meters.add_metrics("web", rounds.RoundMetrics())
        navigation.register_item(navigation.NavItem("System", "system:processes", "activity", 95))
