"""Budgets, months and tier prices over REST and the command line client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from dashboards.costs.ledger import hours
from dashboards.costs.models import Budget, TierPrice
from endpoints.models import Endpoint
from tests.console.commandline.test_parser import run
from tests.dashboards.costs.conftest import NOON, StubPrometheus
from tests.support.people import Cast, client_of
from tests.support.teams import Teams

URL = "/api/v1/budgets/"


def send(client: Client, verb: str, url: str, data: Any, **headers: str) -> Any:
    call = getattr(client, verb)
    return call(url, json.dumps(data), content_type="application/json", headers=headers)


def test_a_budget_over_rest(stub_prometheus: StubPrometheus, one: Endpoint, people: Cast) -> None:
    hours.add_hour(stub_prometheus, NOON)
    alice = client_of(people.alice)
    wanted = {"name": "All", "usd": 4.0}
    tried = send(alice, "post", f"{URL}?dry_run=true", wanted).json()
    assert (tried["action"], Budget.objects.count()) == ("create", 0)
    key = {"Idempotency-Key": "k1"}
    made = [send(alice, "post", URL, wanted, **key) for _ in range(2)]
    assert [answer.status_code for answer in made] == [201, 201]
    assert made[0].json() == made[1].json()
    found = f"{URL}{made[0].json()['id']}/"
    seen = alice.get(found)
    assert seen.json()["whose"] == "all"
    changed = send(alice, "patch", found, {"usd": 8.0}, **{"If-Match": seen["ETag"]})
    assert changed.json()["usd"] == 8.0
    late = send(alice, "patch", found, {"usd": 9.0}, **{"If-Match": seen["ETag"]})
    assert late.status_code == 412
    state = alice.get(f"{found}state/").json()
    assert {"spent_usd", "foreseen_usd", "used_ratio", "forecast_ratio"} < set(state)
    refused = send(alice, "patch", found, {"usd": 0, "whose": "moon"})
    assert refused.status_code == 400
    assert client_of(people.charlie).delete(found).status_code == 403
    assert alice.delete(found).status_code == 204
    assert alice.get(found).status_code == 404


def test_lists_are_limited_to_the_viewer(two_teams: Teams, people: Cast) -> None:
    for name, whose, subject in (("a", "all", ""), ("t", "team", two_teams.ours.slug)):
        Budget.objects.create(name=name, whose=whose, subject=subject, usd=1.0)
    rows = client_of(two_teams.erin).get(URL).json()["results"]
    assert [row["name"] for row in rows] == ["t"]
    rows = client_of(people.charlie).get(f"{URL}?whose=all").json()["results"]
    assert [row["name"] for row in rows] == ["a"]


def test_monthly_costs_over_rest(
    stub_prometheus: StubPrometheus, one: Endpoint, people: Cast
) -> None:
    hours.add_hour(stub_prometheus, NOON)
    charlie = client_of(people.charlie)
    assert charlie.get("/api/v1/cost-reports/").json()[-1]["hours_measured"] == 1.0
    found = charlie.get("/api/v1/cost-reports/2026-11/?weight=2").json()
    assert found["total"]["workers_usd"] == pytest.approx(0.4)
    assert found["keys"]["weight"] == 2.0
    assert [line["name"] for line in found["groups"]["endpoint"]] == ["one"]
    assert "not measured" in found["missing"]
    assert charlie.get("/api/v1/cost-reports/2026-13/").status_code == 404
    assert charlie.get("/api/v1/cost-reports/2026-11/?weight=x").status_code == 400


def test_tier_price_over_rest(one: Endpoint, people: Cast) -> None:
    alice, charlie = client_of(people.alice), client_of(people.charlie)
    url = "/api/v1/tier-prices/default/"
    assert alice.get(url).status_code == 404
    assert send(charlie, "put", url, {"usd_hour": 1.0}).status_code == 403
    assert send(alice, "put", url, {"usd_hour": "x"}).status_code == 400
    made = send(alice, "put", url, {"machine": "ml.g5.xlarge"})
    assert made.json()["machine"] == "ml.g5.xlarge"
    made = send(alice, "put", url, {"usd_hour": 1.0})
    assert made.json()["machine"] == "ml.g5.xlarge", "what is left out stays"
    assert charlie.get("/api/v1/tier-prices/").json()["results"][0]["usd_hour"] == 1.0
    assert alice.delete(url).status_code == 204
    assert not TierPrice.objects.exists()


def test_tier_price_has_a_history(one: Endpoint, people: Cast) -> None:
    alice, charlie = client_of(people.alice), client_of(people.charlie)
    url = "/api/v1/tier-prices/default/"
    assert charlie.get(f"{url}prices/").status_code == 404
    assert send(alice, "put", url, {"since": "2026-13-01"}).status_code == 400

    def set_price(usd: float, since: str) -> None:
        assert send(alice, "put", url, {"usd_hour": usd, "since": since}).status_code == 200

    def history() -> list[tuple[str, float | None]]:
        rows = charlie.get(f"{url}prices/").json()
        return [(row["since"], row["usd_hour"]) for row in rows]

    set_price(1.0, "2026-11-01")
    set_price(2.0, "2026-11-05")
    assert history() == [("2026-11-05", 2.0), ("2026-11-01", 1.0)]
    set_price(3.0, "2026-11-03")
    assert history() == [("2026-11-03", 3.0), ("2026-11-01", 1.0)], "later days get this one"
    today = str(timezone.now().date())
    seen = send(alice, "put", url, {"source": "the bill"}).json()
    assert (seen["since"], seen["usd_hour"]) == (today, 3.0), "left out: today"
    assert alice.delete(url).status_code == 204
    assert history()[0] == (today, None)
    assert history()[1:] == [("2026-11-03", 3.0), ("2026-11-01", 1.0)]
    assert charlie.get("/api/v1/tier-prices/").json()["results"] == []
    assert charlie.get(url).status_code == alice.delete(url).status_code == 404


def test_budget_on_the_command_line(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    hours.add_hour(stub_prometheus, NOON)
    assert "$100.00 per month, scope all" in run("budget", "set", "All", "100")
    assert "tag app=search" in run("budget", "set", "All", "50", "--tag", "app=search")
    assert "app=search" in run("budget", "list")
    assert "deleted" in run("budget", "delete", "All", "--yes")
    assert "No budgets" in run("budget", "list")
    lines = run("cost", "--month", "2026-11").splitlines()
    assert lines[0].startswith("Not included")
    assert lines[-1].startswith("total")
    assert "this-machine" in run("cost", "--month", "2026-11", "--by", "machine")
    assert "0.5" in run("tier-price", "set", "default", "usd_hour=0.5", "since=2026-11-01")
    assert "default" in run("tier-price", "list")
    assert "2026-11-01" in run("tier-price", "history", "default")
    assert "removed" in run("tier-price", "forget", "default", "--yes")
