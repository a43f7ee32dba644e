"""Pages of custom boards: list, link, arrange, pin and search."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.web.shell.search import search_all
from dashboards.custom_boards import actions, views
from dashboards.custom_boards.models import CustomBoard
from tests.support.console import browser, make_endpoint, person
from tests.support.people import client_of
from tests.support.query_counts import check
from tests.support.teams import CANARY, Teams, teams, their_endpoints

pytestmark = pytest.mark.django_db

KEPT = Path(__file__).with_name("query_counts.json")
ALL = "/dashboards/custom/"
PARTIAL = {"HX-Request": "true"}
TTFT = {"type": "panel", "board": "overview", "panel": "ttft"}
QUERY = {"type": "promql", "title": "Targets up", "query": "sum(up)"}


@pytest.fixture
def operator() -> Client:
    return browser("operator")


def made(*panels: dict[str, Any], title: str = "Night shift", **more: Any) -> CustomBoard:
    data = {"version": 1, "title": title, "panels": list(panels or (TTFT,))}
    found: CustomBoard = actions.create(person("operator"), data, **more)
    return found


def fresh(board: CustomBoard) -> CustomBoard:
    return CustomBoard.objects.get(pk=board.pk)


def test_empty_page_links_to_the_dashboards(operator: Client) -> None:
    text = operator.get(ALL).text
    assert "No custom boards" in text
    assert 'href="/dashboards/"' in text


def test_many_boards_are_listed_by_page(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "_PAGE", 2)
    for number in range(3):
        made(title=f"Board {number}")
    first, second = operator.get(ALL).text, operator.get(f"{ALL}?page=2").text
    assert [name in first for name in ("Board 2", "Board 1", "Board 0")] == [True, True, False]
    assert "Board 0" in second


def test_board_shows_panels_of_built_in_boards(operator: Client) -> None:
    make_endpoint("demo")
    board = made(
        {**TTFT, "endpoint": "demo", "width": "third"},
        {"type": "panel", "board": "cost", "panel": "nothing"} | TTFT | {"title": "Fleet TTFT"},
        {**QUERY, "width": "full"},
    )
    text = operator.get(f"{ALL}{board.pk}/?range=6h&compare=previous").text
    for part in ('data-panel="p1"', "Fleet TTFT", "Targets up", 'class="col-12 col-md-6 col-xl-4"'):
        assert part in text
    assert f'data-url="{ALL}{board.pk}/data?range=6h&amp;compare=previous"' in text
    assert (
        'href="/dashboards/endpoints/demo/csv?range=6h&amp;compare=previous&amp;panel=ttft"' in text
    )
    assert "data-arrange" not in text, "only while it is edited"
    assert "data-arrange" in operator.get(f"{ALL}{board.pk}/?edit=1").text
    one = operator.get(f"{ALL}{board.pk}/?panel=p3").text
    assert "data-full" in one
    assert 'data-panel="p1"' not in one
    assert "This board has no panel" in operator.get(f"{ALL}{board.pk}/?panel=p9").text


def test_link_keeps_range_and_endpoint(operator: Client) -> None:
    for name in ("demo", "other"):
        make_endpoint(name)
    board = made({**TTFT, "endpoint": "demo"}, TTFT, shared=True)
    url = f"{ALL}{board.pk}/?from=1700000000&to=1700003600&endpoint=other"
    for client in (operator, browser("viewer")):
        text = client.get(url).text
        assert "data?from=1700000000&amp;to=1700003600&amp;endpoint=other" in text
        assert "other · Overview" in text
        assert "demo · Overview" not in text
        assert "All endpoints · Overview" in text
        assert '<option value="other" selected>' in text
    assert "data-arrange" not in browser("viewer").get(f"{url}&edit=1").text


def test_panel_of_a_deleted_endpoint_has_no_link(operator: Client) -> None:
    board = made({**TTFT, "endpoint": "gone"})
    text = operator.get(f"{ALL}{board.pk}/").text
    assert "gone · Overview" in text
    assert "/endpoints/gone/" not in text


def test_data_is_one_response_with_an_etag(operator: Client) -> None:
    board = made(TTFT, QUERY)
    response = operator.get(f"{ALL}{board.pk}/data")
    data = response.json()
    assert [panel["id"] for panel in data["panels"]] == ["p1", "p2"]
    assert data["fault"]["title"] == "No Prometheus configured"
    assert response["ETag"]
    only = operator.get(f"{ALL}{board.pk}/data?panel=p2").json()["panels"]
    assert [panel["id"] for panel in only] == ["p2"]


def test_csv_of_a_query(operator: Client) -> None:
    board = made(TTFT, QUERY)
    found = operator.get(f"{ALL}{board.pk}/csv?panel=p2")
    assert found.text.startswith("time")
    assert 'filename="fleet-night-shift-p2-15m' in found["Content-Disposition"]
    assert operator.get(f"{ALL}{board.pk}/csv?panel=p1").status_code == 404
    assert operator.get(f"{ALL}{board.pk}/csv").status_code == 404


def test_export_can_be_imported_unchanged(operator: Client) -> None:
    board = made({**TTFT, "endpoint": "demo"}, {**QUERY, "legend": "{{job}}"})
    exported = operator.get(f"{ALL}{board.pk}/export.json")
    assert exported["Content-Disposition"] == 'attachment; filename="night-shift.json"'
    response = operator.post(f"{ALL}import/", {"document": exported.text, "owner": "console"})
    assert response.status_code == 302
    again = operator.get(f"{response.url}export.json")
    assert again.content == exported.content
    assert CustomBoard.objects.get(user=None).title == "Night shift"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "Invalid JSON"),
        ("", "Invalid JSON"),
        ("[]", "Not a JSON object. Send a JSON object."),
        ('{"version": 3, "title": "x"}', "version: “3” rejected. This console reads version 1."),
    ],
)
def test_import_error_states_the_reason(operator: Client, text: str, message: str) -> None:
    response = operator.post(f"{ALL}import/", {"document": text})
    assert response.status_code == 400
    assert message in response.text
    assert not CustomBoard.objects.exists()


def test_every_panel_of_every_board_can_be_pinned(operator: Client) -> None:
    make_endpoint("demo")
    for url, panels in (("/", 2), ("/dashboards/cache/", 10), ("/dashboards/endpoints/demo/", 10)):
        text = operator.get(url).text
        assert text.count("data-board-dialog") == text.count("data-panel=") >= panels
    assert f"{ALL}pin/?board=overview&amp;panel=ttft&amp;endpoint=demo" in text


def test_pin_to_a_board_or_to_a_new_one(operator: Client) -> None:
    board = made()
    source = {"board": "overview", "panel": "ttft", "endpoint": "demo"}
    form = operator.get(f"{ALL}pin/", source, headers=PARTIAL).text
    assert "Pin Time to first token" in form
    assert "<html" not in form
    sent = {**source, "to": str(board.pk), "width": "full"}
    response = operator.post(f"{ALL}pin/", sent, headers=PARTIAL)
    expected = {"message": "Pinned to Night shift.", "link": f"{ALL}{board.pk}/"}
    assert json.loads(response.content) == expected
    added = {"endpoint": "demo", "worker": "", "title": "", "width": "full", "id": "p2"}
    assert fresh(board).panels[1] == {**TTFT, **added}
    operator.post(f"{ALL}pin/", {**source, "to": "", "title": "Second"})
    assert CustomBoard.objects.get(title="Second").panels[0]["panel"] == "ttft"
    refused = operator.post(f"{ALL}pin/", {**source, "to": "", "title": " "}, headers=PARTIAL)
    assert (refused.status_code, "This field is required." in refused.text) == (400, True)
    assert operator.post(f"{ALL}pin/", {**source, "to": "x"}).status_code == 404


def test_panels_are_arranged(operator: Client) -> None:
    board = made(TTFT, QUERY)
    url = f"{ALL}{board.pk}/arrange/"

    def send(**facts: str) -> int:
        return operator.post(url, facts, headers=PARTIAL).status_code

    assert send(panel="p2", move="earlier") == 204
    assert [one["id"] for one in fresh(board).panels] == ["p2", "p1"]
    assert send(panel="p2", move="1") == 204
    assert [one["id"] for one in fresh(board).panels] == ["p1", "p2"]
    assert send(panel="p2", width="third") == 204
    assert send(panel="p2", width="wide") == 400
    assert send(panel="p9", move="later") == 404
    plain = operator.post(url, {"panel": "p1", "remove": "1"})
    assert plain.url == f"{ALL}{board.pk}/?edit=1#panel-p1"
    (left,) = fresh(board).panels
    assert (left["id"], left["width"]) == ("p2", "third")


def test_panels_are_renamed_and_queries_written(operator: Client) -> None:
    board = made()
    facts = {"title": "Requests", "query": "sum(up", "unit": "per_s", "legend": "", "width": "full"}
    new = f"{ALL}{board.pk}/queries/new/"
    assert operator.post(new, {**facts, "query": ""}).status_code == 400
    assert operator.post(new, facts).status_code == 302
    assert operator.post(f"{ALL}{board.pk}/panels/p1/", {"title": "Fleet"}).status_code == 302
    first, second = fresh(board).panels
    assert (first["title"], first["width"], second["query"]) == ("Fleet", "half", "sum(up")
    assert "sum(up" in operator.get(f"{ALL}{board.pk}/panels/p2/").text
    assert operator.get(f"{ALL}{board.pk}/panels/p9/").status_code == 404


def test_settings_and_deletion(operator: Client) -> None:
    board = made()
    url = f"{ALL}{board.pk}/settings/"
    assert operator.post(url, {"title": "", "owner": "user/one-operator"}).status_code == 400
    operator.post(url, {"title": "Day", "owner": "console", "shared": "on"})
    assert (fresh(board).title, fresh(board).owner, fresh(board).shared) == ("Day", "console", True)
    assert browser("viewer").get(url).status_code == 404
    assert browser("viewer").post(f"{ALL}{board.pk}/delete/").status_code == 403
    assert operator.post(f"{ALL}{board.pk}/delete/").url == ALL
    assert operator.get(f"{ALL}{board.pk}/").status_code == 404


def test_other_teams_see_nothing_of_a_board() -> None:
    members: Teams = teams()
    their_endpoints(members)
    board = made({**TTFT, "endpoint": CANARY}, {**QUERY, "query": CANARY}, owner="team/ours")
    erin, hugo = client_of(members.erin), client_of(members.hugo)
    for part in ("", "?edit=1", "export.json", "data", "?panel=p1"):
        assert CANARY not in erin.get(f"{ALL}{board.pk}/{part}").text
        assert hugo.get(f"{ALL}{board.pk}/{part}").status_code == 404
    assert erin.get(f"{ALL}{board.pk}/panels/p2/").status_code == 404
    assert "Night shift" not in hugo.get(ALL).text
    assert erin.get(f"{ALL}{board.pk}/data").json()["panels"][0]["state"] == "hidden"


def test_search_and_menu_link_to_boards(operator: Client) -> None:
    board = made()
    found = [hit for group in search_all(person("operator"), "night") for hit in group.hits]
    assert [(hit.kind, hit.url) for hit in found] == [("custom board", f"{ALL}{board.pk}/")]
    assert not search_all(person("viewer"), "night")
    assert f'href="{ALL}"' in operator.get("/").text


@pytest.mark.parametrize("part", ["", "board/", "data"])
def test_queries_do_not_grow_with_boards_and_panels(operator: Client, part: str) -> None:
    names = [make_endpoint(f"demo{number}").name for number in range(4)]
    board = made(*({**TTFT, "endpoint": name} for name in names), TTFT, QUERY)
    for number in range(5):
        made(title=f"Board {number}")
    url = {"": ALL, "board/": f"{ALL}{board.pk}/", "data": f"{ALL}{board.pk}/data"}[part]
    CustomBoard.objects.filter(pk=board.pk).update(id="00000000-0000-0000-0000-000000000001")
    check(operator, url.replace(str(board.pk), "00000000-0000-0000-0000-000000000001"), KEPT)
