from __future__ import annotations

from django.apps import AppConfig


class VaultConfig(AppConfig):
    name = "console.vault"
    label = "vault"
    verbose_name = "Encrypted texts"

    def ready(self) -> None:
        from console.vault import key_rotation, store

        key_rotation.register(store.SEALED)
