"""Board responses: shared between viewers, cached and expired."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from dashboards.boards import answers
from dashboards.boards.answers import BoardCache
from dashboards.boards.results import board
from tests.support.console import browser, make_endpoint
from tests.support.people import client_of
from tests.support.query_counts import check
from tests.support.teams import CANARY, OURS, teams, their_endpoints

pytestmark = pytest.mark.django_db

COUNTS = Path(__file__).parent / "board_query_counts.json"
FIXED = "from=1795000000&to=1795003600"
ONE = f"/dashboards/endpoints/demo/data?{FIXED}"


@pytest.fixture(autouse=True)
def no_prometheus(settings: Any) -> None:
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url="")


@pytest.fixture
def drawings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each time figures are made."""
    made: list[str] = []
    real = board.document

    def counted(found: board.BoardResult) -> dict[str, Any]:
        made.append(found.chosen.key)
        return real(found)

    monkeypatch.setattr(board, "document", counted)
    return made


def test_equal_visibility_shares_a_rendered_board(drawings: list[str]) -> None:
    make_endpoint("demo")
    one, other = browser("viewer"), browser("operator")
    assert one.get(ONE).json() == other.get(ONE).json()
    assert len(drawings) == 1


@pytest.mark.parametrize(
    "other",
    [
        "/dashboards/data?" + FIXED,
        ONE + "&worker=demo-0",
        ONE + "&compare=previous",
        ONE + "&panel=ttft",
        "/dashboards/endpoints/demo/data?from=1795000000&to=1795003000",
    ],
)
def test_other_query_is_rendered_separately(drawings: list[str], other: str) -> None:
    make_endpoint("demo")
    client = browser("viewer")
    client.get(ONE)
    assert client.get(other).status_code == 200
    assert len(drawings) == 2


def test_viewers_of_different_endpoints_share_no_board(drawings: list[str]) -> None:
    made = teams()
    their_endpoints(made)
    url = "/dashboards/data?range=1h"
    ours, theirs = (client_of(user).get(url).json() for user in (made.frank, made.hugo))
    assert len(drawings) == 2
    assert {note["endpoint"] for note in ours["notes"]} == {OURS}
    assert {note["endpoint"] for note in theirs["notes"]} == {CANARY}


def test_unchanged_board_returns_304() -> None:
    make_endpoint("demo")
    client = browser("viewer")
    first = client.get(ONE)
    again = client.get(ONE, headers={"If-None-Match": first["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    make_endpoint("other")
    fleet = client.get(f"/dashboards/data?{FIXED}")
    assert fleet["ETag"] != first["ETag"]


def test_large_response_is_compressed_if_accepted() -> None:
    make_endpoint("demo")
    packed = browser("viewer").get(ONE, headers={"Accept-Encoding": "gzip"})
    assert packed["Content-Encoding"] == "gzip"
    assert "no-store" in packed["Cache-Control"]


def test_single_and_unknown_panel(client: Client) -> None:
    make_endpoint("demo")
    viewer = browser("viewer")
    only = viewer.get(f"{ONE}&panel=ttft").json()
    assert [panel["id"] for panel in only["panels"]] == ["ttft"]
    page = viewer.get("/dashboards/endpoints/demo/?panel=nothing").content.decode()
    assert "This board has no panel" in page
    assert page.count("data-panel=") > 1, "all of them are shown then"


def test_board_tabs_keep_the_selection() -> None:
    make_endpoint("demo")
    viewer = browser("viewer")
    page = viewer.get("/dashboards/endpoints/demo/?range=6h&compare=previous&worker=w").content
    html = page.decode()
    assert "/dashboards/endpoints/demo/?range=6h&amp;compare=previous&amp;worker=w" in html
    assert 'value="w" selected' in html, "a worker that is gone can still be looked at"
    assert viewer.get("/dashboards/overview/").status_code == 200
    assert viewer.get("/dashboards/nothing/").status_code == 404


def test_invalid_query_shows_a_notice(settings: Any) -> None:
    html = browser("viewer").get("/dashboards/?from=later&refresh=1").content.decode()
    assert "later" in html
    assert "Invalid value for" in html


def test_second_caller_waits_for_the_first_and_the_oldest_entry_is_evicted() -> None:
    kept, made = BoardCache(), []
    for key in (1, 1, *range(2, answers.MAX_CACHED + 2), 1):
        kept.get(key, 60, lambda k=key: made.append(k))
    assert made.count(1) == 2, "made again after it was pushed out"
    assert made.count(2) == 1


def test_expired_cache_entry_is_rendered_again() -> None:
    kept, made = BoardCache(), []
    for _ in range(2):
        kept.get("key", -1, lambda: made.append(1))
    assert len(made) == 2


def test_exported_values_are_unrounded() -> None:
    make_endpoint("demo")
    viewer = browser("viewer")
    for url in (f"/dashboards/endpoints/demo/csv?{FIXED}&panel=ttft", f"/dashboards/csv?{FIXED}"):
        response = viewer.get(url)
        assert response["Content-Type"].startswith("text/csv")
        assert "attachment" in response["Content-Disposition"]
    assert json.loads(viewer.get(ONE).content)["window"]["step"] == 10


def test_number_of_queries_is_constant() -> None:
    for number in range(3):
        make_endpoint(f"demo-{number}")
    viewer = browser("viewer")
    urls = ("/dashboards/", "/dashboards/cost/", f"/dashboards/data?{FIXED}")
    for url in (*urls, "/dashboards/endpoints/demo-0/cache/"):
        check(viewer, url, COUNTS)


def test_times_of_a_board_are_in_the_time_zone_of_the_profile(drawings: list[str]) -> None:
    make_endpoint("demo")
    viewer = browser("viewer")
    viewer.get(ONE)
    viewer.cookies["emberline-zone"] = "Asia/Kolkata"
    local = viewer.get(ONE).json()
    assert len(drawings) == 2, "readers of two zones share no board"
    assert local["zone"] == {"name": "IST", "offset_s": 19_800}
    assert local["at"].endswith(" IST")
    page = viewer.get(f"/dashboards/endpoints/demo/?{FIXED}").content.decode()
    assert "From (IST)" in page
    assert 'name="from" value="2026-11-18T16:36:40"' in page
    typed = "from=2026-11-18T16:36:40&to=2026-11-18T17:36:40"
    typed_page = viewer.get(f"/dashboards/endpoints/demo/?{typed}").content.decode()
    assert f"data?{FIXED}" in typed_page.replace("&amp;", "&"), "addresses have epoch seconds"
    assert "Nov 18, 16:36 to Nov 18, 17:36 IST" in typed_page
