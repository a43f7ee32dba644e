from __future__ import annotations

from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "console.audit"
    label = "audit"
    verbose_name = "Audit trail"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.audit import integrity
        from console.clusters import rekeying
        from console.system import rounds
        from console.web import navigation

        rekeying.register(integrity.SEALED)
        rounds.register(integrity.as_round)
        navigation.register(navigation.NavItem("Audit", "audit:list", "history", 80))
