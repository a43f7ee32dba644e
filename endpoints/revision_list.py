"""The list of an endpoint's revisions: a page of it, each with what it changed of the one before.

Promises two queries, however many revisions there are.
"""

from __future__ import annotations

from typing import Any

from django.core.paginator import Page, Paginator

from endpoints import selectors
from endpoints.models import Endpoint, Revision
from endpoints.spec.endpoint_spec import parse
from endpoints.spec_diff import diff

PAGE_SIZE = 20


def page_of_revisions(endpoint: Endpoint, number: str | None) -> Page[Revision]:
    return Paginator(selectors.revisions(endpoint), PAGE_SIZE).get_page(number)


def told(endpoint: Endpoint, page: Page[Revision]) -> list[dict[str, Any]]:
    """Latest first. `serves` answers requests now; `failed` says why the console went back."""
    rows = list(page.object_list)
    last = rows[-1].number if rows else 0
    before_all = selectors.revisions(endpoint).filter(number__lt=last).first()
    status = endpoint.status
    return [
        {
            "row": row,
            "changes": diff(parse(before.spec), parse(row.spec)) if before else (),
            "current": row.spec == endpoint.spec,
            "wanted": row.number == endpoint.generation,
            "serves": status.served_once and row.number == status.served_generation,
            "failed": status.rolled_back.get("message")
            if status.rolled_back.get("failed") == row.number
            else "",
        }
        for row, before in zip(rows, [*rows[1:], before_all], strict=True)
    ]
