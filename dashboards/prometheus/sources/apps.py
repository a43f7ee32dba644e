from __future__ import annotations

from django.apps import AppConfig


class MetricsSourcesConfig(AppConfig):
    name = "dashboards.prometheus.sources"
    label = "metrics_sources"
    verbose_name = "Metrics sources"

    def ready(self) -> None:
        from console.audit.targets import TargetKind, register_kind
        from console.system import preflight
        from console.vault import key_rotation
        from dashboards.prometheus.sources import actions, diagnosis, selectors

        register_kind(TargetKind("metrics-source", "metrics_sources:source", selectors.existing))
        preflight.register_check(diagnosis.ask)
        key_rotation.register(actions.SEALED)
