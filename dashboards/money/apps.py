from __future__ import annotations

from django.apps import AppConfig


class MoneyConfig(AppConfig):
    name = "dashboards.money"
    label = "money"
    default_auto_field = "django.db.models.BigAutoField"
