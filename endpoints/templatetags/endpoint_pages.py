"""Template tags for endpoint pages: head and list cells.

The head takes one query for the owner, none if the context has it.
"""

from __future__ import annotations

from typing import Any

from django import template

from endpoints.models import Endpoint
from endpoints.pages.detail.configuration import format_value
from endpoints.pages.head import head_context
from endpoints.pages.list.columns import Cell

register = template.Library()


@register.inclusion_tag("endpoints/inc/head_bar.html")
def endpoint_head(endpoint: Endpoint, brief: str = "") -> dict[str, Any]:
    return head_context(endpoint, brief=bool(brief))


@register.inclusion_tag("endpoints/inc/head_facts.html")
def endpoint_facts(endpoint: Endpoint, brief: str = "") -> dict[str, Any]:
    """`brief` omits the cause of a bad phase, which the Overview shows in full."""
    return head_context(endpoint, brief=bool(brief))


@register.simple_tag
def cell(cells: dict[str, dict[str, Cell]], key: str, name: str) -> Cell | None:
    """Return a registered column's cell; None while it is loading."""
    return cells.get(key, {}).get(name)


register.filter("shown", format_value)
