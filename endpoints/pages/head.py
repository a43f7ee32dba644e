"""Helpers of endpoint pages: lookup by name, and the page head without further queries."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.core.cache import cache
from django.http import Http404, HttpRequest
from django.utils import timezone

from console.core.registry import Registry
from endpoints import selectors
from endpoints.choices import SETTLED, Phase
from endpoints.models import Endpoint
from endpoints.reconcile.reconciler import STEADY_S
from endpoints.refusals import NotFoundError

log = logging.getLogger(__name__)
UNSETTLED_POLL_S = 2
SETTLED_POLL_S = 5
STALE_S = STEADY_S + 60
"""A pass of an endpoint without changes is overdue."""
# int() raises for thousands of digits.
WHOLE = re.compile(r"-?[0-9]{1,18}")
TROUBLED = frozenset({Phase.DEGRADED, Phase.UNAVAILABLE, Phase.FAILED})
FIGURES_S: Final = 10
"""Time (s) for which the figures of the header are cached."""


@dataclass(frozen=True, slots=True)
class HeadFigure:
    """Figure of the header; `why`: reason for a missing text, `absent` in short."""

    label: str
    text: str = ""
    why: str = ""
    absent: str = "no data"


FigureSource = Callable[[Endpoint], Sequence[HeadFigure]]
# Sources return within their own deadline.
_sources: Registry[FigureSource] = Registry()
register_figures = _sources.register


def head_context(endpoint: Endpoint, *, brief: bool = False, query: bool = False) -> dict[str, Any]:
    """`query`: read figures that are not cached; without it they are left to the first poll."""
    status = endpoint.status
    figures = read_figures(endpoint) if query else cache.get(_figures_key(endpoint))
    return {
        "figures": figures or (),
        "figures_due": figures is None and any(_sources),
        "endpoint": endpoint,
        "status": status,
        "brief": brief,
        "poll_s": poll_s(endpoint),
        "wanted_replicas": selectors.wanted_replicas(endpoint),
        "troubled": endpoint.shown_phase in TROUBLED,
        "stale": is_stale(endpoint),
    }


def read_figures(endpoint: Endpoint) -> Sequence[HeadFigure]:
    """Return the figures of all sources, cached; a failed source gives none."""
    figures: list[HeadFigure] | None = cache.get(_figures_key(endpoint))
    if figures is None:
        figures = [figure for source in _sources for figure in _read_source(source, endpoint)]
        cache.set(_figures_key(endpoint), figures, FIGURES_S)
    return figures


def _read_source(source: FigureSource, endpoint: Endpoint) -> Sequence[HeadFigure]:
    try:
        return source(endpoint)
    except Exception:  # figures must not break the page
        log.exception("Figures of %s failed; the header omits them", endpoint.name)
        return ()


def _figures_key(endpoint: Endpoint) -> str:
    return f"endpoints.head.{endpoint.pk}"


def poll_s(endpoint: Endpoint) -> int:
    """Return the polling interval (s), shorter during transitions."""
    settled = endpoint.shown_phase in SETTLED and endpoint.current
    return SETTLED_POLL_S if settled else UNSETTLED_POLL_S


def is_stale(endpoint: Endpoint) -> bool:
    """Return whether the last observation is overdue."""
    seen_s = (timezone.now() - endpoint.status.updated_at).total_seconds()
    return seen_s > STALE_S


def find_endpoint(name: str) -> Endpoint:
    try:
        return selectors.get(name)
    except NotFoundError as error:
        raise Http404(str(error)) from None


def generation_of(request: HttpRequest) -> int | None:
    """Return the generation shown on the page; None disables the check."""
    text = request.POST.get("generation", "")
    return int(text) if WHOLE.fullmatch(text) else None
