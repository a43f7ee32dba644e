"""Custom boards over REST: create, read, replace, delete, export."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dashboards.custom_boards.models import CustomBoard
from tests.support.console import program
from tests.support.people import client_of
from tests.support.teams import CANARY, Teams, teams, their_endpoints

pytestmark = pytest.mark.django_db

ALL = "/api/v1/custom-boards/"
TTFT = {"type": "panel", "board": "overview", "panel": "ttft"}
BOARD: dict[str, Any] = {"version": 1, "title": "Mine", "panels": [TTFT]}


def test_board_document_can_be_sent_back() -> None:
    client = program("operator")
    made = client.post(ALL, {**BOARD, "shared": True}, format="json")
    assert made.status_code == 201
    body = made.json()
    assert (body["owner"], body["shared"], body["may_edit"]) == ("user/one-operator", True, True)
    one = f"{ALL}{body['id']}/"
    assert client.get(one).json() == body
    assert client.get(ALL).json()["results"] == [body]
    assert client.put(one, body, format="json").json() == body, "nothing is changed"
    longer = {**body, "panels": [*body["panels"], TTFT]}
    changed = client.put(one, longer, format="json", headers={"If-Match": made["ETag"]})
    assert (changed.json()["generation"], len(changed.json()["panels"])) == (2, 2)
    stale = client.put(one, longer, format="json", headers={"If-Match": made["ETag"]})
    assert stale.status_code in (409, 412)
    assert client.delete(one).status_code == 204
    assert client.get(one).status_code == 404


def test_export_recreates_the_board() -> None:
    client = program("operator")
    first = client.post(ALL, BOARD, format="json").json()
    exported = client.get(f"{ALL}{first['id']}/export/").json()
    again = client.post(ALL, exported, format="json").json()
    assert client.get(f"{ALL}{again['id']}/export/").json() == exported
    assert set(exported) == {"format", "version", "title", "panels"}


def test_error_names_field_value_and_remedy() -> None:
    bad = {**BOARD, "panels": [{**TTFT, "width": "wide"}]}
    found = program("operator").post(ALL, bad, format="json")
    assert found.status_code == 400
    (error,) = found.json()["errors"]
    assert (error["field"], error["value"]) == ("panels[0].width", "wide")
    assert error["remedy"] == "Use one of: third, half, full."
    assert not CustomBoard.objects.exists()


def test_viewer_cannot_write_boards() -> None:
    shared = program("operator").post(ALL, {**BOARD, "shared": True}, format="json").json()
    client = program("viewer")
    assert client.post(ALL, BOARD, format="json").status_code == 403
    assert client.get(f"{ALL}{shared['id']}/").json()["may_edit"] is False
    assert client.delete(f"{ALL}{shared['id']}/").status_code == 403
    assert client.get(ALL).json()["results"] == [], "shared by its link only"


def test_other_teams_read_only_their_boards() -> None:
    members: Teams = teams()
    their_endpoints(members)
    ours = {**BOARD, "owner": "team/ours", "panels": [{**TTFT, "endpoint": CANARY}]}
    client = program("operator")
    made = [client.post(ALL, {**ours, "title": f"b{n}"}, format="json").json() for n in range(3)]
    erin, hugo = client_of(members.erin), client_of(members.hugo)
    assert CANARY not in erin.get(ALL).text
    assert erin.get(ALL).json()["results"][0]["panels"][0]["type"] == "hidden"
    assert hugo.get(ALL).json()["results"] == []
    assert hugo.get(f"{ALL}{made[0]['id']}/").status_code == 404
    assert hugo.get(f"{ALL}{made[0]['id']}/export/").status_code == 404
    CustomBoard.objects.exclude(pk=made[0]["id"]).delete()
    few = _count(erin)
    for n in range(5):
        client.post(ALL, {**ours, "title": f"c{n}"}, format="json")
    assert _count(erin) == few


def _count(client: Any) -> int:
    with CaptureQueriesContext(connection) as seen:
        client.get(ALL)
    return len(seen)
