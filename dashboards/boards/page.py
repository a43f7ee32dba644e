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
    place: BoardLocation, look: BoardQuery, problems: Sequence[Problem], workers: Sequence[str] = ()
) -> dict[str, Any]:
    shown = place.shown(look)
    if look.panel and not shown:
        remedy = "All panels are shown."
        text = f'This board has no panel "{look.panel}".'
        missing = Problem("panel", look.panel, text, remedy, "not_found")
        look, problems = replace(look, panel=""), (*problems, missing)
    if look.worker and not place.endpoint:
        look = replace(look, worker="")
    return {
        "board": place.board,
        "tabs": _build_tabs(place, look),
        "sections": _build_sections(place, look),
        "full": bool(look.panel),
        "of_one": bool(place.endpoint),
        "endpoint_url": f"{board_url(replace(place, endpoint='_'))}?{look.query(panel='')}",
        "whole_url": f"?{look.query(panel='')}",
        "csv_url": f"{board_url(place, 'csv')}?{look.query()}",
        "compare": Choice("Compare", f"?{look.query(compare=not look.compare)}", look.compare),
        "problems": problems,
        "workers": workers,
        "known_worker": not look.worker or look.worker in workers,
        **build_time_controls(look, f"{board_url(place, 'data')}?{look.query()}"),
    }


def build_time_controls(look: BoardQuery, data_url: str) -> dict[str, Any]:
    return {
        "look": look,
        "chosen": look.range,
        "data_url": data_url,
        "ranges": [
            Choice(
                key,
                f"?{look.query(range=choice, until=None)}",
                not look.fixed and key == look.range.key,
                f"Last {choice.label}",
            )
            for key, choice in RANGES.items()
        ],
        "refreshes": [("off" if not s else str(s), _format_interval(s), s) for s in REFRESHES],
        "from_field": _format_datetime_local((look.until or 0) - look.range.length_s)
        if look.fixed
        else "",
        "zoom_out_url": f"?{_zoom_out(look).query()}" if look.until is not None else "",
        "begin": (look.until or 0) - look.range.length_s,
        "zone": get_zone_name(localize(look.until or time.time())),
        "to_field": _format_datetime_local(look.until) if look.until is not None else "",
    }


def board_url(place: BoardLocation, part: str = "") -> str:
    """Return the URL of the page, or of its `part`: data, csv."""
    name = "endpoint" if place.endpoint else "fleet"
    args = [place.endpoint] if place.endpoint else []
    if place.board.key != FIRST:
        name, args = f"{name}_board", [*args, place.board.key]
    return reverse(f"dashboards:{name}_{part}" if part else f"dashboards:{name}", args=args)


def endpoint_url(look: BoardQuery) -> str:
    """Return the URL of an endpoint's first board, with `_` for its name."""
    return f"{reverse('dashboards:endpoint', args=['_'])}?{look.query(panel='')}"


def pin_url(board: str, panel: str, endpoint: str = "", worker: str = "") -> str:
    """Return the URL of the form that adds the panel to a custom board."""
    source = {"board": board, "panel": panel, "endpoint": endpoint, "worker": worker}
    chosen = urlencode({name: value for name, value in source.items() if value})
    return f"{reverse('custom_boards:pin')}?{chosen}"


def _build_tabs(place: BoardLocation, look: BoardQuery) -> list[Choice]:
    found = []
    for board in BOARDS.values():
        other = replace(place, board=board)
        if other.panels:
            url = f"{board_url(other)}?{look.query(panel='')}"
            here = board.key == place.board.key
            found.append(Choice(board.title, url, here, board.about, board.icon))
    return found


def _build_sections(place: BoardLocation, look: BoardQuery) -> list[dict[str, Any]]:
    found = []
    for section in place.board.sections(one=bool(place.endpoint)):
        panels = [
            {
                "panel": panel,
                "full_url": f"?{look.query(panel=panel.id)}",
                "csv_url": f"{board_url(place, 'csv')}?{look.query(panel=panel.id)}",
                "pin_url": pin_url(place.board.key, panel.id, place.endpoint, look.worker),
            }
            for panel in section.panels
            if look.panel in ("", panel.id)
        ]
        if panels:
            anchor = section.anchor or slugify(section.title)
            # open state shared by the endpoint and fleet boards
            key = f"{place.board.key}/{anchor}"
            found.append({"title": section.title, "panels": panels, "anchor": anchor, "key": key})
    return found


def _zoom_out(look: BoardQuery) -> BoardQuery:
    """Double the range around its middle; reading the query cuts it off at now."""
    end, length = look.until or 0, look.range.length_s
    half = min(length, LONGEST_S - length) // 2
    return look.during(end - length - half, end + half)


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
