"""Values of a custom board with a real Prometheus: batched, and limited to the viewer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from console.accounts.models import User
from dashboards.boards.answers import BoardQuery
from dashboards.custom_boards.documents import BoardPanel
from dashboards.custom_boards.measurement import measure_board
from dashboards.prometheus.http.client import Prometheus, QueryResult, Question
from tests.support.console import make_endpoint, person
from tests.support.dashboards.fixtures import Scraping
from tests.support.teams import CANARY, OURS, Teams, teams, their_endpoints

pytestmark = pytest.mark.django_db


@pytest.fixture
def prometheus(settings: Any, scraping: Scraping) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=scraping.url)


@pytest.fixture
def team_members() -> Teams:
    found = teams()
    their_endpoints(found)
    return found


def pinned(name: str, panel: str = "ttft", **more: Any) -> BoardPanel:
    return BoardPanel(name, "panel", board="overview", panel=panel, **more)


def query(name: str, text: str, **more: Any) -> BoardPanel:
    return BoardPanel(name, "promql", title=name, query=text, **more)


def measured(viewer: User, *panels: BoardPanel, **options: Any) -> dict[str, Any]:
    found = measure_board(viewer, panels, BoardQuery(**options))
    assert [one["id"] for one in found["panels"]] == [panel.id for panel in panels]
    return found | {"panels": {one["id"]: one for one in found["panels"]}}


def latest(panel: Mapping[str, Any]) -> dict[str, str]:
    return {row[0]: row[1] for row in panel["table"]["rows"]}


@pytest.mark.usefixtures("prometheus")
def test_panels_of_several_scopes_equal_those_of_their_boards() -> None:
    make_endpoint("demo")
    make_endpoint("old")
    found = measured(
        person("viewer"),
        pinned("a", endpoint="demo"),
        pinned("b", panel="sources", endpoint="old", title="Sources of old"),
        pinned("c", panel="requests"),
        pinned("again", endpoint="demo", title="Again"),
        query("q", 'up{job="router"} == 1', legend="{{ endpoint_name }} router"),
        compare=True,
    )
    panels = found["panels"]
    assert found["fault"] is None
    assert latest(panels["a"])["p50"] == "100 ms"
    assert (panels["a"]["title"], panels["again"]["title"]) == ("Time to first token", "Again")
    assert panels["again"]["spoken"].startswith("Again. Over the range: p50")
    assert panels["b"]["state"] == "ok"
    assert "L1 and L2" not in latest(panels["a"])
    assert set(latest(panels["c"])) == {"demo", "idle", "left", "old"}
    assert set(latest(panels["q"])) >= {"demo router", "idle router", "old router"}
    assert panels["q"]["state"] == "ok"
    assert "Mean (previous)" in panels["q"]["table"]["head"]


@pytest.mark.usefixtures("prometheus")
def test_query_error_is_shown_unchanged() -> None:
    found = measured(person("viewer"), query("bad", "sum(up"), query("none", "absent_metric"))
    message = found["panels"]["bad"]["message"]
    assert (found["panels"]["bad"]["state"], found["fault"]) == ("bad_query", None)
    assert "unclosed left parenthesis" in message["text"]
    assert found["panels"]["none"]["message"]["title"] == "No data in this range"


def test_panels_hidden_from_a_viewer_are_one_line(team_members: Teams) -> None:
    found = measured(
        team_members.frank,
        pinned("ours", endpoint=OURS),
        pinned("theirs", endpoint=CANARY),
        pinned("gone", endpoint="gone"),
        query("q", "up"),
        BoardPanel("h", "hidden"),
        BoardPanel("old", "panel", board="overview", panel="removed"),
    )["panels"]
    assert found["ours"]["state"] == "prometheus", "it was asked for"
    lines = {name: panel["message"]["title"] for name, panel in found.items() if name != "ours"}
    gone = "was deleted or is not visible to you."
    assert lines["theirs"] == f"Endpoint {CANARY} {gone}"
    assert lines["gone"] == f"Endpoint gone {gone}"
    assert lines["q"].startswith("PromQL panels require a role for all endpoints.")
    assert lines["h"] == "The content of this panel is not visible to you."
    assert lines["old"] == "This version of the console has no such panel. Remove it."


def test_one_batch_per_scope_and_one_for_all_queries(
    monkeypatch: pytest.MonkeyPatch, settings: Any, django_assert_max_num_queries: Any
) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url="http://stub")
    rounds: list[set[str]] = []

    def ask(_self: Prometheus, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        rounds.append(set(questions))
        return dict.fromkeys(questions, QueryResult())

    monkeypatch.setattr(Prometheus, "ask", ask)
    viewer = person("viewer")
    make_endpoint("demo")
    few = (pinned("p0", endpoint="demo"), query("q0", "up"))
    measured(viewer, *few)
    alone = len(rounds)
    rounds.clear()
    kinds = ("ttft", "itl", "e2e", "sources", "requests")
    many = [pinned(f"p{at}", kind, endpoint="demo") for at, kind in enumerate(kinds)]
    with django_assert_max_num_queries(12):
        measured(viewer, *many, *(query(f"q{at}", f"up + {at}") for at in range(5)))
    assert len(rounds) <= alone
    assert {f"q{at}" for at in range(5)} in rounds


def test_viewers_share_the_rendered_queries(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url="http://stub")
    requests: list[str] = []

    def ask(_self: Prometheus, questions: Mapping[str, Question]) -> dict[str, QueryResult]:
        requests.extend(question.query for question in questions.values())
        return dict.fromkeys(questions, QueryResult())

    monkeypatch.setattr(Prometheus, "ask", ask)
    fixed = {"until": 1_700_000_000}
    for viewer, text in (("viewer", "up"), ("operator", "up"), ("viewer", "up + 1")):
        measured(person(viewer), query("q", text), **fixed)
    assert [text for text in requests if text.startswith("up")] == ["up", "up + 1"]
