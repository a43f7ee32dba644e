"""Comparison of two states of an endpoint: desired, serving, or any revision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Page, Paginator

from endpoints import selectors
from endpoints.models import Endpoint, Revision
from endpoints.pages.detail.configuration import format_value
from endpoints.refusals import no_revision
from endpoints.spec.endpoint_spec import EndpointSpec, diff, parse
from endpoints.spec.field import Effect

WANTED = "wanted"
SERVING = "serving"


@dataclass(frozen=True, slots=True)
class RevisionSide:
    """Side of a comparison of revisions. `key` in the URL: a revision number or one of the names
    above.
    """

    key: str
    label: str
    number: int
    spec: EndpointSpec


@dataclass(frozen=True, slots=True)
class FieldComparison:
    label: str
    path: str
    before: str
    after: str
    effect: str


@dataclass(frozen=True, slots=True)
class Comparison:
    rows: Sequence[FieldComparison]
    restarts: bool
    """Changing from the first to the second replaces the workers."""


def find_side(endpoint: Endpoint, key: str) -> RevisionSide:
    if key == WANTED:
        return RevisionSide(WANTED, "current revision", endpoint.generation, endpoint.parsed)
    number = endpoint.status.served_generation if key == SERVING else _number(key)
    # A generation without its own revision has the spec of the previous one.
    row = selectors.revisions(endpoint).filter(number__lte=number).first()
    if row is None or (key != SERVING and row.number != number):
        raise no_revision(endpoint.name, number)
    label = "serving revision" if key == SERVING else f"revision {row.number}"
    return RevisionSide(key, label, row.number, parse(row.spec))


def compare_sides(old: RevisionSide, new: RevisionSide) -> Comparison:
    changes = diff(old.spec, new.spec)
    rows = [
        FieldComparison(
            change.label,
            change.path,
            format_value(change.before),
            format_value(change.after),
            change.effect.label,
        )
        for change in changes
    ]
    return Comparison(rows, any(change.effect is Effect.RESTART for change in changes))


def _number(key: str) -> int:
    """Parse a revision number; 0, which is never used, if invalid."""
    return int(key) if key.isascii() and key.isdigit() and len(key) <= 18 else 0


PAGE_SIZE = 20


def page_of_revisions(endpoint: Endpoint, number: str | None) -> Page[Revision]:
    return Paginator(selectors.revisions(endpoint), PAGE_SIZE).get_page(number)


def revision_rows(endpoint: Endpoint, page: Page[Revision]) -> list[dict[str, Any]]:
    """Return the rows, latest first. `serves`: serving now; `failed`: rollback cause."""
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
