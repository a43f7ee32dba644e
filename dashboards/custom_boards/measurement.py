"""Values of a custom board: one batch for each scope of its panels, and one for its queries.

Panels of built-in boards are measured, judged and cached as on those boards. Scopes are measured
concurrently; a panel without a source, or that the viewer may not see, is one line.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

from console.accounts.permissions import Somebody
from console.core.local_time import format_clock, get_axis_zone, get_zone_key
from dashboards import selectors as dashboards_selectors
from dashboards.boards import annotations as boards_annotations
from dashboards.boards.answers import CACHE, BoardLocation, BoardQuery, render
from dashboards.boards.panels import Panel
from dashboards.boards.panels.declarations import Board, PanelSection
from dashboards.boards.queries import SCRAPE_S, Scope
from dashboards.boards.results.board import BoardRequest, Factors, document
from dashboards.boards.results.verdicts import Message
from dashboards.costs.prices.factors import factors
from dashboards.custom_boards import query_panels, selectors
from dashboards.custom_boards.documents import PANEL, PROMQL, BoardPanel
from dashboards.prometheus.http.client import Asker, Window
from dashboards.prometheus.http.federation import Federated
from dashboards.prometheus.sources import selectors as sources
from endpoints import selectors as endpoint_selectors

_AT_ONCE = 4  # scopes
_INVISIBLE = Message(
    "info", "Not available", "The content of this panel is not visible to you.", ""
)
_UNKNOWN = Message(
    "info", "Not available", "This version of the console has no such panel.", "Remove it."
)
_NO_QUERIES = Message(
    "info",
    "Not available",
    "PromQL panels require a role for all endpoints.",
    "Ask an administrator for access.",
)


@dataclass(frozen=True, slots=True)
class _Group:
    """Panels of one scope: the whole fleet, or an endpoint and maybe one worker of it."""

    endpoint: str
    worker: str
    panels: Sequence[BoardPanel]

    @property
    def sources(self) -> Mapping[str, Panel]:
        """Return the built-in panels, with ids unique among boards."""
        sources = {}
        for panel in self.panels:
            if panel.source is not None:
                sources[_source_id(panel)] = replace(panel.source, id=_source_id(panel))
        return sources

    @property
    def is_priced(self) -> bool:
        return any(line.factor for panel in self.sources.values() for line in panel.lines)


@dataclass(frozen=True, slots=True)
class _Batch:
    group: _Group
    asker: Asker
    scope: Scope
    prices: Factors


@dataclass(frozen=True, slots=True)
class BoardPlan:
    """Queries of a custom board. `notices`: by panel id, why it has no data."""

    groups: Sequence[_Group]
    queries: Sequence[BoardPanel]
    notices: Mapping[str, Message]


def plan(viewer: Somebody, panels: Sequence[BoardPanel]) -> BoardPlan:
    """Sort the panels by scope, leaving out those the viewer may not see."""
    endpoints = selectors.list_visible_endpoints(viewer, panels)
    notices: dict[str, Message] = {}
    groups: dict[tuple[str, str], list[BoardPanel]] = {}
    queries = []
    for panel in panels:
        if not selectors.can_see(viewer, panel, endpoints):
            notices[panel.id] = _explain(panel)
        elif panel.type == PROMQL:
            queries.append(panel)
        elif panel.source is None:
            notices[panel.id] = _UNKNOWN
        else:
            groups.setdefault((panel.endpoint, panel.worker), []).append(panel)
    return BoardPlan([_Group(*key, group) for key, group in groups.items()], queries, notices)


def _explain(panel: BoardPanel) -> Message:
    """Return why the viewer may not see the panel."""
    if panel.type == PANEL:
        text = f"Endpoint {panel.endpoint} was deleted or is not visible to you."
        return replace(_INVISIBLE, text=text)
    return _NO_QUERIES if panel.type == PROMQL else _INVISIBLE


def measure_board(
    viewer: Somebody, panels: Sequence[BoardPanel], board_query: BoardQuery
) -> dict[str, Any]:
    """Return the values of `panels` in the form of a built-in board's data."""
    planned, end = plan(viewer, panels), board_query.end(time.time())
    jobs = [_plan_group(batch, board_query, end) for batch in _list_batches(viewer, planned.groups)]
    if planned.queries:
        asker = sources.fleet()
        jobs.append(lambda: _render_queries(asker, planned.queries, board_query, end))
    with ThreadPoolExecutor(max(1, min(_AT_ONCE, len(jobs)))) as pool:
        # Each thread has the reader's time zone.
        contexts = [copy_context() for _ in jobs]
        answers = list(pool.map(lambda context, job: context.run(job), contexts, jobs))
    notices = {key: _make_notice(key, message) for key, message in planned.notices.items()}
    for group, answer in zip(planned.groups, answers, strict=False):
        by_id = {panel["id"]: panel for panel in answer["panels"]}
        notices |= {panel.id: _name(panel, by_id[_source_id(panel)]) for panel in group.panels}
    if planned.queries:
        notices |= {panel["id"]: panel for panel in answers[-1]["panels"]}
    chosen = board_query.range
    whole = asdict(Window.ending(end, chosen.length_s, chosen.step_s))
    window = answers[0]["window"] if answers else whole
    return {
        **_list_notes(viewer, planned.groups, Window(**window)),
        "at": format_clock(end, seconds=True),
        "range": chosen.key,
        "window": window,
        "zone": get_axis_zone(window["end"]),
        "fault": next((answer["fault"] for answer in answers if answer["fault"]), None),
        **{
            name: answers[0][name] if len(planned.groups) == 1 else ""
            for name in ("scraped", "first_data")
        },
        "panels": [notices[panel.id] for panel in panels],
    }


def _render_queries(
    asker: Asker, panels: Sequence[BoardPanel], board_query: BoardQuery, end: float
) -> dict[str, Any]:
    """Return the document of PromQL panels, rendered once for all viewers of a moment."""
    source = asker.parts if isinstance(asker, Federated) else asker
    window = Window.ending(end, board_query.range.length_s, board_query.range.step_s)
    key = (
        "promql",
        source,
        tuple(panels),
        board_query.range,
        board_query.compare,
        window,
        get_zone_key(),
    )
    results: dict[str, Any] = CACHE.get(
        key,
        SCRAPE_S - 1,
        lambda: document(query_panels.measure_queries(asker, panels, board_query, end)),
    )
    return results


def _list_batches(viewer: Somebody, groups: Sequence[_Group]) -> list[_Batch]:
    """Return the batch of each group; the number of database queries does not depend on theirs."""
    names = {group.endpoint for group in groups if group.endpoint}
    askers = dict(sources.connect_endpoints(names)) if names else {}
    scopes = {name: Scope(name, endpoint_selectors.NAMESPACE) for name in names}
    if any(not group.endpoint for group in groups):
        askers[""] = sources.fleet()
        scopes[""] = dashboards_selectors.get_fleet_scope(viewer)
    # Prices cost queries: read them only for panels that use them.
    prices = factors(viewer) if any(group.is_priced for group in groups) else {}
    return [
        _Batch(
            group,
            askers[group.endpoint],
            replace(scopes[group.endpoint], worker=group.worker),
            prices if group.is_priced else {},
        )
        for group in groups
    ]


def _plan_group(batch: _Batch, board_query: BoardQuery, end: float) -> Callable[[], dict[str, Any]]:
    """Return the function that measures the batch; it makes no database query."""
    group, group_sources = batch.group, batch.group.sources
    sections = (PanelSection("", tuple(group_sources.values())),)
    # The key of the shared cache.
    board = Board(f"custom:{','.join(group_sources)}", "", "", "", sections, sections)
    place = BoardLocation(board, group.endpoint)

    def measure() -> dict[str, Any]:
        panels = tuple(group_sources.values())
        request = BoardRequest(
            batch.asker,
            panels,
            batch.scope,
            board_query.range,
            end,
            batch.prices,
            board_query.compare,
        ).fit()
        whole = BoardQuery(
            request.chosen, board_query.until, compare=board_query.compare, worker=group.worker
        )
        return cast(dict[str, Any], json.loads(render(place, whole, request)))

    return measure


def _source_id(panel: BoardPanel) -> str:
    return f"{panel.board}.{panel.panel}"


def _name(item: BoardPanel, found: dict[str, Any]) -> dict[str, Any]:
    """Return a built-in panel's values with the id and title it has on this board."""
    title = item.title or found["title"]
    alternative = title + found["spoken"].removeprefix(found["title"])
    return {**found, "id": item.id, "title": title, "spoken": alternative}


def _make_notice(key: str, message: Message) -> dict[str, Any]:
    """Return a panel that is one line of text."""
    line = {"level": message.level, "title": f"{message.text} {message.fix}".strip()}
    return {
        "id": key,
        "title": "",
        "about": "",
        "state": "hidden",
        "message": {**line, "text": "", "fix": ""},
        "figure": None,
        "table": {"head": [], "rows": []},
        "spoken": f"{message.text}",
    }


def _list_notes(viewer: Somebody, groups: Sequence[_Group], window: Window) -> dict[str, Any]:
    """Return the annotations of the only endpoint, else of the fleet."""
    names = {group.endpoint for group in groups}
    if len(names) == 1 and (name := next(iter(names))):
        asker, scope = (sources.connect_endpoint(name), Scope(name, endpoint_selectors.NAMESPACE))
    else:
        asker, scope = sources.fleet(), dashboards_selectors.get_fleet_scope(viewer)
    return boards_annotations.list_notes(asker, viewer, scope, window)
