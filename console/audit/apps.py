from __future__ import annotations

from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "console.audit"
    label = "audit"
    verbose_name = "Audit trail"

    def ready(self) -> None:
        from console.audit import integrity
        from console.vault import key_rotation
        from console.web.shell import navigation

        key_rotation.register(integrity.SEALED)
        navigation.register_item(navigation.NavItem("Audit", "audit:list", "history", 80))
