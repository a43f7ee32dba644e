from __future__ import annotations

from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "console.api"
    label = "api"
    verbose_name = "REST base"

    def ready(self) -> None:
        from console.api import (
            idempotency,
            schema,  # noqa: F401  (adds the login schemes to the OpenAPI document)
        )
        from console.vault import key_rotation

        key_rotation.register(idempotency.SEALED)
