from __future__ import annotations

from django.apps import AppConfig


class CachetierConfig(AppConfig):
    name = "cachetier"
    default_auto_field = "django.db.models.BigAutoField"
