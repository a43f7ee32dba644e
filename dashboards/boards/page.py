"""HTML context of a board page: tabs, time ranges and links that keep the current selection."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.urls import register_converter, reverse
from django.urls.converters import SlugConverter
from django.utils.text import slugify

from console.core.errors import Problem
from console.core.local_time import get_zone_name, localize
from dashboards.boards.answers import LONGEST_S, REFRESHES, BoardLocation, BoardQuery
from dashboards.boards.panels import BOARDS, FIRST
from dashboards.boards.panels.declarations import RANGES


@dataclass(frozen=True, slots=True)
class Choice:
    label: str
    url: str
    active: bool
    hint: str = ""
    icon: str = ""


def build_context(
    place: BoardLocation,
    board_query: BoardQuery,
    problems: Sequence[Problem],
    workers: Sequence[str] = (),
) -> dict[str, Any]:
    board_shown = place.shown(board_query)
    if board_query.panel and not board_shown:
        remedy = "All panels are shown."
        text = f'This board has no panel "{board_query.panel}".'
        missing = Problem("panel", board_query.panel, text, remedy, "not_found")
        board_query, problems = replace(board_query, panel=""), (*problems, missing)
    if board_query.worker and not place.endpoint:
        board_query = replace(board_query, worker="")
    return {
        "board": place.board,
        "tabs": _build_tabs(place, board_query),
        "sections": _build_sections(place, board_query),
        "full": bool(board_query.panel),
        "of_one": bool(place.endpoint),
        "endpoint_url": f"{board_url(replace(place, endpoint='_'))}?{board_query.query(panel='')}",
        "whole_url": f"?{board_query.query(panel='')}",
        "csv_url": f"{board_url(place, 'csv')}?{board_query.query()}",
        "compare": Choice(
            "Compare", f"?{board_query.query(compare=not board_query.compare)}", board_query.compare
        ),
        "problems": problems,
        "workers": workers,
        "known_worker": not board_query.worker or board_query.worker in workers,
        **build_time_controls(board_query, f"{board_url(place, 'data')}?{board_query.query()}"),
    }


def build_time_controls(board_query: BoardQuery, data_url: str) -> dict[str, Any]:
    return {
        "board_query": board_query,
        "chosen": board_query.range,
        "data_url": data_url,
        "ranges": [
            Choice(
                key,
                f"?{board_query.query(range=choice, until=None)}",
                not board_query.fixed and key == board_query.range.key,
                f"Last {choice.label}",
            )
            for key, choice in RANGES.items()
        ],
        "refreshes": [("off" if not s else str(s), _format_interval(s), s) for s in REFRESHES],
        "from_field": _format_datetime_local((board_query.until or 0) - board_query.range.length_s)
        if board_query.fixed
        else "",
        "zoom_out_url": f"?{_zoom_out(board_query).query()}"
        if board_query.until is not None
        else "",
        "begin": (board_query.until or 0) - board_query.range.length_s,
        "zone": get_zone_name(localize(board_query.until or time.time())),
        "to_field": _format_datetime_local(board_query.until)
        if board_query.until is not None
        else "",
    }


def board_url(place: BoardLocation, part: str = "") -> str:
    """Return the URL of the page, or of its `part`: data, csv."""
    name = "endpoint" if place.endpoint else "fleet"
    args = [place.endpoint] if place.endpoint else []
    if place.board.key != FIRST:
        name, args = f"{name}_board", [*args, place.board.key]
    return reverse(f"dashboards:{name}_{part}" if part else f"dashboards:{name}", args=args)


def endpoint_url(board_query: BoardQuery) -> str:
    """Return the URL of an endpoint's first board, with `_` for its name."""
    return f"{reverse('dashboards:endpoint', args=['_'])}?{board_query.query(panel='')}"


def pin_url(board: str, panel: str, endpoint: str = "", worker: str = "") -> str:
    """Return the URL of the form that adds the panel to a custom board."""
    source = {"board": board, "panel": panel, "endpoint": endpoint, "worker": worker}
    chosen = urlencode({name: value for name, value in source.items() if value})
    return f"{reverse('custom_boards:pin')}?{chosen}"


def rule_url(board: str, panel: str, endpoint: str = "") -> str:
    """Return the URL of the form for an alert rule on the panel's first query."""
    source = {"board": board, "panel": panel, "endpoint": endpoint}
    chosen = urlencode({name: value for name, value in source.items() if value})
    return f"{reverse('alerting:new')}?{chosen}"


def _build_tabs(place: BoardLocation, board_query: BoardQuery) -> list[Choice]:
    tabs = []
    for board in BOARDS.values():
        other = replace(place, board=board)
        if other.panels:
            url = f"{board_url(other)}?{board_query.query(panel='')}"
            here = board.key == place.board.key
            tabs.append(Choice(board.title, url, here, board.about, board.icon))
    return tabs


def _build_sections(place: BoardLocation, board_query: BoardQuery) -> list[dict[str, Any]]:
    sections = []
    for section in place.board.sections(one=bool(place.endpoint)):
        panels = [
            {
                "panel": panel,
                "full_url": f"?{board_query.query(panel=panel.id)}",
                "csv_url": f"{board_url(place, 'csv')}?{board_query.query(panel=panel.id)}",
                "pin_url": pin_url(place.board.key, panel.id, place.endpoint, board_query.worker),
                "rule_url": rule_url(place.board.key, panel.id, place.endpoint),
            }
            for panel in section.panels
            if board_query.panel in ("", panel.id)
        ]
        if panels:
            anchor = section.anchor or slugify(section.title)
            # open state shared by the endpoint and fleet boards
            key = f"{place.board.key}/{anchor}"
            sections.append(
                {"title": section.title, "panels": panels, "anchor": anchor, "key": key}
            )
    return sections


def _zoom_out(board_query: BoardQuery) -> BoardQuery:
    """Double the range around its middle; reading the query cuts it off at now."""
    end, length = board_query.until or 0, board_query.range.length_s
    half = min(length, LONGEST_S - length) // 2
    return board_query.during(end - length - half, end + half)


def _format_interval(seconds: int) -> str:
    return f"every {seconds} s" if seconds else "off"


def _format_datetime_local(moment: int) -> str:
    return f"{localize(moment):%Y-%m-%dT%H:%M:%S}"


class BoardKey(SlugConverter):
    def to_python(self, value: str) -> str:
        if value not in BOARDS:
            raise ValueError(value)
        return value


def register_board_converter() -> None:
    """Register the `<board:board>` converter; called once, before URLs are resolved."""
    register_converter(BoardKey, "board")
