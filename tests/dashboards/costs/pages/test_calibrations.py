"""Calibration page, REST and command line: results, manual runs and switches."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from console.audit.models import AuditEvent
from dashboards.calibration_switches import read_switches
from dashboards.models import Calibration
from tests.dashboards.costs.formulas.test_calibration import serving_endpoint
from tests.dashboards.costs.prices.test_factors import measured
from tests.support.people import Cast, cast, client_of
from tests.support.teams import CANARY, OURS, Teams, teams, their_endpoints

PAGE = "/costs/calibration/"


@pytest.fixture
def people(db: None) -> Cast:
    return cast()


def text_of(client: Client) -> str:
    answer = client.get(PAGE)
    assert answer.status_code == 200
    return answer.content.decode()


def send(client: Client, verb: str, url: str, data: Any = None) -> Any:
    return getattr(client, verb)(f"/api/v1/{url}", data, content_type="application/json")


def test_results_and_reasons_are_shown(people: Cast) -> None:
    demo = serving_endpoint()
    assert "not yet" in text_of(client_of(people.charlie))
    measured(demo, 0.0004, automatic=True)
    assert "0.4 ms" in text_of(client_of(people.charlie))
    Calibration.objects.update(state="failed", reason="traffic", message="Other requests arrived.")
    page = text_of(client_of(people.charlie))
    assert "Requests arrived" in page
    assert "automatic, " in page


def test_default_and_exception(people: Cast) -> None:
    demo, alice = serving_endpoint(), client_of(people.alice)
    assert read_switches().enabled(demo.pk), "on in a new installation"
    assert alice.post(PAGE, {"auto": "off"}).status_code == 302
    assert not read_switches().enabled(demo.pk)
    assert alice.post("/costs/demo/auto-calibration/", {"auto": "nonsense"}).status_code == 400
    for choice, effective in (("on", True), ("default", False)):
        assert alice.post("/costs/demo/auto-calibration/", {"auto": choice}).status_code == 302
        assert read_switches().enabled(demo.pk) is effective
    assert "off" in alice.get("/settings/").content.decode()
    assert AuditEvent.objects.filter(target="settings/auto-calibration").count() == 1
    assert AuditEvent.objects.filter(target="endpoint/demo", verb="endpoint.update").count() == 2
    charlie = client_of(people.charlie)
    assert charlie.post(PAGE, {"auto": "on"}).status_code == 403
    assert charlie.post("/costs/demo/auto-calibration/", {"auto": "on"}).status_code == 403


def test_manual_run_from_the_page(people: Cast) -> None:
    serving_endpoint()
    alice = client_of(people.alice)
    assert alice.post("/costs/demo/calibrate/").status_code == 302
    assert Calibration.objects.get().started_by == people.alice
    assert "Waiting for a background worker" in text_of(alice)


def test_over_rest(people: Cast) -> None:
    serving_endpoint()
    alice, url = client_of(people.alice), "endpoints/demo/auto-calibration/"
    assert send(alice, "get", "costs/auto-calibration/").json()["auto_calibration"] is True
    assert send(alice, "patch", "costs/auto-calibration/", {"auto_calibration": False}).json() == {
        "auto_calibration": False,
        "effective": False,
    }
    made = send(alice, "patch", url, {"auto_calibration": True})
    assert made.json() == {"auto_calibration": True, "effective": True}
    assert send(alice, "patch", url, {"auto_calibration": None}).json()["effective"] is False
    for wrong in ({}, {"auto_calibration": "perhaps"}):
        assert send(alice, "patch", url, wrong).status_code == 400
    assert send(alice, "get", "endpoints/demo/calibration/").status_code == 404
    assert send(alice, "post", "endpoints/demo/calibration/").status_code == 202
    assert send(alice, "get", "endpoints/demo/calibration/").json()["automatic"] is False


def test_endpoints_of_other_teams_are_404(people: Cast) -> None:
    found: Teams = teams()
    their_endpoints(found)
    erin = client_of(found.erin)
    assert CANARY not in text_of(erin)
    assert OURS in text_of(erin)
    assert send(erin, "get", f"endpoints/{CANARY}/auto-calibration/").status_code == 404
    answer = send(
        erin, "patch", f"endpoints/{CANARY}/auto-calibration/", {"auto_calibration": True}
    )
    assert answer.status_code == 404
