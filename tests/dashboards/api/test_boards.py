"""Boards over REST: declarations and measured values."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dashboards.boards.panels import BOARDS, FIRST
from tests.support.console import make_endpoint, program
from tests.support.dashboards.fixtures import Scraping
from tests.support.people import client_of
from tests.support.teams import CANARY, OURS, teams, their_endpoints

pytestmark = pytest.mark.django_db

ALL = "/api/v1/boards/"
ONE = f"{ALL}{FIRST}/"


@pytest.fixture(autouse=True)
def prometheus(settings: Any, scraping: Scraping) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=scraping.url)


def test_all_boards_with_all_their_panels() -> None:
    found = program("viewer").get(ALL).json()
    assert [board["key"] for board in found["results"]] == list(BOARDS)
    for board in found["results"]:
        declared = BOARDS[board["key"]]
        assert [panel["id"] for panel in board["fleet"]] == [
            panel.id for panel in declared.panels(one=False)
        ]


def test_measured_values_of_one_endpoint() -> None:
    make_endpoint("demo")
    requested = {"endpoint": "demo", "panel": "sources", "compare": "previous"}
    found = program("viewer").get(ONE, requested).json()
    (panel,) = found["panels"]
    window = found["window"]
    points = (window["end"] - window["start"]) // window["step"] + 1
    lines = {line["name"]: line["values"] for line in panel["lines"]}
    assert all(len(values) == points for values in lines.values())
    assert lines["Device"][-1] == pytest.approx(0.4)
    assert panel["lines"][0]["key"] == "device"
    assert (panel["state"], panel["unit"], found["fault"]) == ("ok", "share", None)
    assert found["notes"][0]["text"] == "Created"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"worker": "demo-0"}, "worker"),
        ({"panel": "nothing"}, "panel"),
        ({"range": "1y"}, "range"),
        ({"from": "9", "to": "1"}, "from"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_rejected_query_names_the_field(given: dict[str, str], field: str) -> None:
    refused = program("viewer").get(ONE, given)
    assert refused.status_code == 400
    assert refused.json()["field"] == field
    assert refused.json()["remedy"]


def test_unknown_board_and_panel() -> None:
    client = program("viewer")
    assert client.get(f"{ALL}nothing/").status_code == 404
    assert client.get(ONE, {"endpoint": "nobody"}).status_code == 404


def test_member_sees_only_endpoints_of_their_teams() -> None:
    made = teams()
    their_endpoints(made)
    frank = client_of(made.frank)
    assert frank.get(ONE, {"endpoint": CANARY}).status_code == 404
    assert frank.get(ONE, {"endpoint": OURS}).status_code == 200
    fleet = frank.get(ONE)
    assert CANARY not in fleet.content.decode()
    assert {note["endpoint"] for note in fleet.json()["notes"]} == {OURS}
