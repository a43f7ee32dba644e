"""JSON format of a board: accepted documents, and errors with field, value and remedy."""

from __future__ import annotations

from typing import Any

import pytest

from console.core.errors import Refused
from dashboards.custom_boards.documents import BoardPanel, parse_board

PINNED = {
    "id": "p1",
    "type": "panel",
    "title": "",
    "width": "third",
    "board": "overview",
    "panel": "ttft",
    "endpoint": "demo",
    "worker": "",
}
QUERY = {
    "id": "q",
    "type": "promql",
    "title": "Up",
    "width": "full",
    "query": "sum(up)\n  by (job)",
    "unit": "count",
    "legend": "{{job}}",
}
BOARD = {"format": "emberline/custom-board", "version": 1, "title": "Mine"}


def test_board_round_trips_through_export() -> None:
    document = {**BOARD, "panels": [PINNED, QUERY]}
    assert parse_board(document).export() == document


def test_defaults_and_ids_are_filled_in() -> None:
    short = {"type": "panel", "board": "overview", "panel": "ttft"}
    found = parse_board({**BOARD, "panels": [short, {**PINNED, "id": "p1"}, short]}).panels
    assert [panel.id for panel in found] == ["p2", "p1", "p3"]
    assert (found[0].width, found[0].endpoint) == ("half", "")


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"version": 2}, "version", 2),
        ({"version": True}, "version", True),
        ({"format": "grafana"}, "format", "grafana"),
        ({"title": " "}, "title", " "),
        ({"colour": "red"}, "colour", None),
        ({"panels": {}}, "panels", {}),
        ({"panels": [PINNED] * 41}, "panels", None),
        ({"panels": ["ttft"]}, "panels[0]", None),
        ({"panels": [{**PINNED, "type": "text"}]}, "panels[0].type", "text"),
        ({"panels": [{**PINNED, "id": "A b"}]}, "panels[0].id", "A b"),
        ({"panels": [PINNED, PINNED]}, "panels[1].id", "p1"),
        ({"panels": [{**PINNED, "width": "wide"}]}, "panels[0].width", "wide"),
        ({"panels": [{**PINNED, "width": []}]}, "panels[0].width", []),
        ({"panels": [{**PINNED, "board": "nothing"}]}, "panels[0].board", "nothing"),
        ({"panels": [{**PINNED, "panel": "nothing"}]}, "panels[0].panel", "nothing"),
        ({"panels": [{**PINNED, "endpoint": "De mo"}]}, "panels[0].endpoint", "De mo"),
        ({"panels": [{**PINNED, "title": "a\0b"}]}, "panels[0].title", "a\0b"),
        ({"panels": [{**PINNED, "title": [7]}]}, "panels[0].title", [7]),
        ({"panels": [{**PINNED, "query": "up"}]}, "panels[0].query", "up"),
        ({"panels": [{**QUERY, "query": " "}]}, "panels[0].query", " "),
        ({"panels": [{**QUERY, "query": "u" * 4001}]}, "panels[0].query", "u" * 80),
        ({"panels": [{**QUERY, "unit": "furlong"}]}, "panels[0].unit", "furlong"),
        ({"panels": [{**QUERY, "title": ""}]}, "panels[0].title", ""),
        ({"panels": [{"id": "p", "type": "hidden"}]}, "panels[0].type", "hidden"),
    ],
)
def test_invalid_board_is_rejected_by_field(change: dict[str, Any], field: str, value: Any) -> None:
    with pytest.raises(Refused) as refused:
        parse_board({**BOARD, "panels": [PINNED], **change})
    found = {problem.field: problem for problem in refused.value.errors}
    assert set(found) == {field}
    assert found[field].value == value
    assert found[field].message
    assert found[field].remedy


def test_worker_panel_needs_an_endpoint() -> None:
    alone = {**PINNED, "board": "workers", "panel": "", "endpoint": "", "worker": "demo-0"}
    with pytest.raises(Refused) as refused:
        parse_board({**BOARD, "panels": [alone]})
    assert "panels[0].worker" in {problem.field for problem in refused.value.errors}


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(Refused) as refused:
        parse_board({"version": 9, "panels": [{**PINNED, "width": "w"}, {**QUERY, "unit": "u"}]})
    fields = {problem.field for problem in refused.value.errors}
    assert fields == {"version", "title", "panels[0].width", "panels[1].unit"}


def test_hidden_panel_keeps_its_content_and_gets_the_new_width() -> None:
    stored = (BoardPanel("p1", "panel", board="overview", panel="ttft", endpoint="demo"),)
    hidden = {"id": "p1", "type": "hidden", "title": "", "width": "full"}
    (found,) = parse_board({**BOARD, "panels": [hidden]}, stored).panels
    assert (found.endpoint, found.panel, found.width) == ("demo", "ttft", "full")
