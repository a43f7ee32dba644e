"""URL converter for names of alert rules, built in or user-written."""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import StringConverter


class RuleName(StringConverter):
    regex = "[A-Za-z_][A-Za-z0-9_]{2,79}"


def register() -> None:
    """Register `<alertrule:rule>`; called once, before URL patterns are loaded."""
    register_converter(RuleName, "alertrule")
