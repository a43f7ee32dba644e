"""What stands at the head of every page about one endpoint, whichever room the page is of.

Promises one query (who else says what the endpoint is), and none where the page knows already.
"""

from __future__ import annotations

from typing import Any

from django import template

from endpoints.models import Endpoint
from endpoints.pages.detail.configuration import shown
from endpoints.pages.head import head_context
from endpoints.pages.list.columns import Cell

register = template.Library()


@register.inclusion_tag("endpoints/htmx/head.html")
def endpoint_head(endpoint: Endpoint, brief: str = "") -> dict[str, Any]:
    """`brief` leaves out why it is not well: the Overview tells that at length."""
    return head_context(endpoint, brief=bool(brief))


@register.simple_tag
def cell(cells: dict[str, dict[str, Cell]], key: str, name: str) -> Cell | None:
    """What another room says in a column of the list; None while it is asked."""
    return cells.get(key, {}).get(name)


register.filter("shown", shown)
