"""The kind of name in URLs which is that of an alert rule, built in or written here."""

from __future__ import annotations

from django.urls import register_converter
from django.urls.converters import StringConverter


class RuleName(StringConverter):
    regex = "[A-Za-z_][A-Za-z0-9_]{2,79}"


def register() -> None:
    """`<alertrule:rule>`; called once, before any address is looked up."""
    register_converter(RuleName, "alertrule")
