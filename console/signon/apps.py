from __future__ import annotations

from django.apps import AppConfig


class SignonConfig(AppConfig):
    name = "console.signon"
    label = "signon"
    verbose_name = "The way in"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from console.signon import checks, facts  # noqa: F401  (they register themselves)
