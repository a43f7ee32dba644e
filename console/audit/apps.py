from __future__ import annotations

from django.apps import AppConfig


class AuditConfig(AppConfig):
    name = "console.audit"
    label = "audit"
    verbose_name = "Audit log"

    def ready(self) -> None:
        from console.audit import integrity, targets
        from console.vault import key_rotation
        from console.web import errors
        from console.web.shell import navigation

        key_rotation.register(integrity.SEALED)
        errors.register_explanation(targets.explain_not_found)
        navigation.register_item(navigation.NavItem("Audit log", "audit:list", "history", 80))
