"""Pages of months, budgets and tier prices."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from console.audit.models import AuditEvent
from dashboards.costs.ledger import hours, months, sums
from dashboards.costs.models import Budget, CostDay, MeasuredHour, TierPrice
from dashboards.costs.reports import endpoints as lately
from dashboards.costs.reports import monthly, shares
from dashboards.costs.reports.monthly import COLUMNS
from endpoints.models import Endpoint, InferenceKey, KeyUsage, Revision
from tests.dashboards.costs.conftest import HOUR_S, NOON, StubPrometheus, made
from tests.support.people import Cast, client_of
from tests.support.query_counts import check
from tests.support.teams import CANARY, NOBODYS, OURS, Teams

KEPT = Path(__file__).parent / "query_counts.json"
HOURLY = 0.4
MONTH = months.month_of(NOON)


@pytest.fixture
def measured(stub_prometheus: StubPrometheus, one: Endpoint) -> Endpoint:
    for back in range(4):
        hours.add_hour(stub_prometheus, NOON - (back + 1) * hours.HOUR)
    CostDay.objects.update(slope=0.002, tags={"app": "=cmd()"})
    return one


def page(user: Any, url: str) -> str:
    answer = client_of(user).get(url)
    assert answer.status_code == 200, url
    return answer.content.decode()


def test_month_is_reported(measured: Endpoint, people: Cast) -> None:
    text = page(people.charlie, "/costs/reports/2026-11/")
    assert "Costs of November 2026" in text
    assert "1.6" in text
    assert "Sums are incomplete" in text, "hours up to now were not measured"
    Endpoint.objects.all().delete()
    assert ">one<" in page(people.charlie, "/costs/reports/2026-11/").replace(" ", "")
    assert "November 2026" in page(people.charlie, "/costs/reports/")
    for wrong in ("2026-13", "x", "1999-01"):
        assert client_of(people.charlie).get(f"/costs/reports/{wrong}/").status_code == 404


def test_missing_price_is_not_zero(measured: Endpoint, people: Cast) -> None:
    CostDay.objects.update(price=None, tier="redis:r:1", tier_h=1.0, tier_price=None)
    KeyUsage.objects.create(
        endpoint_name="one", key_id="", hour=NOON, requests=1, prompt_tokens=1, completion_tokens=1
    )
    text = page(people.charlie, "/costs/reports/2026-11/")
    assert "$0.00" not in text
    assert "100.0% of the worker time has no price" in text
    rows = list(csv.DictReader(io.StringIO(page(people.charlie, "/costs/reports/2026-11.csv"))))
    assert {row["total_usd"] for row in rows} == {row["tier_usd"] for row in rows} == {""}
    report = client_of(people.charlie).get("/api/v1/cost-reports/2026-11/").json()
    amounts = [name for name in COLUMNS if name.endswith("_usd")]
    assert [report["total"][name] for name in amounts] == [None] * 6
    assert [line["usd"] for line in report["keys"]["lines"]] == [None]
    assert report["keys"]["busy_usd"] is None


def test_csv_has_numbers_and_no_formula(measured: Endpoint, people: Cast) -> None:
    text = page(people.charlie, "/costs/reports/2026-11.csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert set(rows[0]) == set(COLUMNS)
    (own,) = [row for row in rows if row["group"] == "endpoint"]
    assert float(own["workers_usd"]) == pytest.approx(4 * HOURLY)
    assert float(own["idle_usd"]) == pytest.approx(2 * HOURLY)
    # (64,000 cached x 2 ms - 16 s) of a worker at 0.2 USD/h.
    assert float(own["saved_usd"]) == pytest.approx((128 - 16) / HOUR_S * 0.2)
    (tag,) = [row for row in rows if row["group"] == "tag:app"]
    assert tag["name"] == "'=cmd()"


def test_measured_share_of_a_month_is_shown(stub_prometheus: StubPrometheus, one: Endpoint) -> None:
    now = NOON.replace(minute=30)
    assert months.coverage(MONTH, now).share is None
    for back in (1, 2):
        hours.add_hour(stub_prometheus, NOON - back * hours.HOUR)
    found = months.coverage(MONTH, now)
    assert (found.due, found.queried, found.scraped, found.whole) == (2, 2, 2.0, True)
    MeasuredHour.objects.filter(hour=NOON - hours.HOUR).delete()
    found = months.coverage(MONTH, now)
    assert (found.due, found.share, found.whole) == (2, 0.5, False)
    later = NOON + timedelta(days=25)
    assert [month.key for month in months.stored_months(later)] == ["2026-12", "2026-11"]


def allocated(viewer: Any, weight: float = shares.WEIGHT) -> shares.Allocation:
    lines = sums.by_endpoint(sums.days(MONTH.first, MONTH.after, viewer))
    return shares.allocate(MONTH, viewer, lines, weight)


def test_keys_share_busy_time(measured: Endpoint, people: Cast) -> None:
    key = InferenceKey.objects.create(endpoint=measured, name="app", sha256="x", prefix="e")
    for key_id, prompt, cached, completion in (
        (str(key.pk), 1000, 400, 100),
        ("", 500, 500, 0),
        ("gone-key", 0, 0, 250),
    ):
        KeyUsage.objects.create(
            endpoint_name="one",
            key_id=key_id,
            hour=NOON,
            requests=1,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
        )
    found = allocated(people.charlie)
    busy = 2 * HOURLY
    assert {line.name: line.usd for line in found.lines} == pytest.approx(
        {"app": busy / 2, "deleted key gone-key": busy / 2, "without a key": 0.0}
    )
    assert (found.busy_usd, found.idle_usd) == pytest.approx((busy, busy))
    assert found.unreported_usd == pytest.approx(0.0)
    only_prompts = allocated(people.charlie, 0.0)
    assert only_prompts.lines[0].usd == pytest.approx(busy)
    KeyUsage.objects.all().delete()
    assert allocated(people.charlie).unreported_usd == pytest.approx(busy)
    assert "output token = 2" in page(people.charlie, "/costs/reports/2026-11/?weight=2")


def test_costs_of_another_team_are_in_no_response(
    stub_prometheus: StubPrometheus, two_teams: Teams, people: Cast, one: Endpoint
) -> None:
    Endpoint.objects.update(created_at=NOON - timedelta(days=1))
    stub_prometheus.used = dict.fromkeys((CANARY, OURS, NOBODYS), stub_prometheus.used["one"])
    hours.add_hour(stub_prometheus, NOON)
    for url in ("", ".csv"):
        text = page(two_teams.erin, f"/costs/reports/2026-11{url or '/'}")
        assert OURS in text
        assert CANARY not in text
        assert NOBODYS not in text
    # After a move to another team, the endpoint's days belong to that team.
    Endpoint.objects.filter(name=OURS).update(team=two_teams.theirs)
    assert OURS not in page(two_teams.erin, "/costs/reports/2026-11/")


def test_shared_tier_is_split_among_teams(
    stub_prometheus: StubPrometheus, two_teams: Teams, people: Cast, one: Endpoint
) -> None:
    """Two hours of 8 USD: in the first one team reads three quarters, in the second none reads."""
    redis = {"enabled": True, "backend": "redis", "url": "redis://r:1"}
    Endpoint.objects.update(created_at=NOON - timedelta(days=1), changed_at=NOON)
    for row in Endpoint.objects.filter(name__in=(OURS, CANARY)):
        row.spec = {**row.spec, "cache": {"l2": redis}}
        row.save()
    Revision.objects.all().delete()
    TierPrice.objects.create(name="redis:r:1", since=NOON.date(), usd_hour=8.0)
    used = stub_prometheus.used["one"]
    more = {'source=~"disk': 3_000.0, "router_cached_prompt_tokens_total": 18_000.0}
    stub_prometheus.used = {OURS: {**used, **more}, CANARY: used}
    hours.add_hour(stub_prometheus, NOON)
    stub_prometheus.used = {}
    hours.add_hour(stub_prometheus, NOON + hours.HOUR)
    report = monthly.report(MONTH, NOON, people.charlie)
    (pool,) = report.pools
    ours, theirs = two_teams.ours.slug, two_teams.theirs.slug
    assert [part.team for part in pool.parts] == [ours, theirs]
    assert [part.share for part in pool.parts] == pytest.approx([0.625, 0.375])
    assert [part.usd for part in pool.parts] == pytest.approx([10.0, 6.0])
    assert pool.hours == pytest.approx(2.0)
    (pool,) = monthly.report(MONTH, NOON, two_teams.erin).pools
    assert [(part.team, part.usd) for part in pool.parts] == [
        (ours, pytest.approx(10.0)),
        (shares.OTHERS, pytest.approx(6.0)),
    ]
    for url in ("/costs/reports/2026-11/", "/costs/reports/2026-11.csv"):
        text = page(two_teams.erin, url)
        assert "redis:r:1" in text
        assert shares.OTHERS in text
        assert CANARY not in text
        assert theirs not in text


def test_without_prometheus_tier_users_are_unknown(
    stub_prometheus: StubPrometheus, one: Endpoint
) -> None:
    redis = {"cache": {"l2": {"enabled": True, "backend": "redis", "url": "redis://r:1"}}}
    made("two", **redis)
    TierPrice.objects.create(name="redis:r:1", since=NOON.date(), usd_hour=1.0)
    stub_prometheus.away = True

    def pays() -> list[float | None]:
        rows = lately.report(stub_prometheus, "1h", NOON.timestamp()).rows
        return [row.costs.l2.usd for row in rows if row.needs.tier]

    assert pays() == [1.0], "who has it alone pays for it"
    made("three", **redis)
    assert pays() == [None, None]
    stub_prometheus.away, stub_prometheus.used = False, {}
    assert pays() == [0.5, 0.5]


def test_budget_from_the_form_to_its_deletion(measured: Endpoint, people: Cast) -> None:
    alice = client_of(people.alice)
    wanted = {"name": "All", "whose": "all", "subject": "", "usd": "2"}
    assert alice.post("/costs/budgets/new/", wanted).status_code == 302
    made = Budget.objects.get()
    assert (
        "A budget with this name exists"
        in alice.post("/costs/budgets/new/", wanted).content.decode()
    )
    text = page(people.charlie, "/costs/budgets/")
    assert "All" in text
    assert "/costs/budgets/new/" not in text, "a viewer is offered nothing"
    change = {**wanted, "whose": "tag", "subject": "app"}
    refused = alice.post(f"/costs/budgets/{made.pk}/", change)
    assert refused.status_code == 400
    assert "Write a tag as KEY=VALUE" in refused.content.decode()
    change["subject"] = "app=search"
    assert alice.post(f"/costs/budgets/{made.pk}/", change).status_code == 302
    assert client_of(people.charlie).post("/costs/budgets/new/", wanted).status_code == 403
    assert alice.post(f"/costs/budgets/{made.pk}/delete/").status_code == 302
    assert not Budget.objects.exists()
    verbs = AuditEvent.objects.filter(target="budget/All").order_by("pk")
    assert [event.verb for event in verbs] == ["budget.create", "budget.update", "budget.delete"]


def test_team_sets_budgets_for_its_endpoints(two_teams: Teams, people: Cast) -> None:
    erin, frank = client_of(two_teams.erin), client_of(two_teams.frank)
    mine = {"name": "Ours", "whose": "team", "subject": two_teams.ours.slug, "usd": "5"}
    assert frank.post("/costs/budgets/new/", mine).status_code == 403
    assert erin.post("/costs/budgets/new/", mine).status_code == 302
    for other in (
        {"whose": "all", "subject": ""},
        {"whose": "team", "subject": two_teams.theirs.slug},
        {"whose": "endpoint", "subject": CANARY},
        {"whose": "endpoint", "subject": "never-was"},
    ):
        refused = erin.post("/costs/budgets/new/", {**mine, "name": "X", **other})
        assert refused.status_code in (400, 403), other
    assert Budget.objects.count() == 1
    made = Budget.objects.get()
    hugo = client_of(two_teams.hugo)
    assert hugo.post(f"/costs/budgets/{made.pk}/", mine).status_code == 404
    assert hugo.post(f"/costs/budgets/{made.pk}/delete/").status_code == 404
    away = {**mine, "whose": "team", "subject": two_teams.theirs.slug}
    assert erin.post(f"/costs/budgets/{made.pk}/", away).status_code == 400
    assert Budget.objects.get().subject == two_teams.ours.slug


def test_tier_cost_is_shown(one: Endpoint, people: Cast) -> None:
    Endpoint.objects.update(
        spec={**one.spec, "cache": {"l2": {"enabled": True, "backend": "redis", "url": "x://r:1"}}}
    )
    assert "redis:r:1" in page(people.alice, "/costs/tiers/")
    alice = client_of(people.alice)
    assert alice.get("/costs/tiers/redis:r:1/").status_code == 200
    assert alice.get("/costs/tiers/none-such/").status_code == 404
    refused = alice.post("/costs/tiers/redis:r:1/", {"usd_hour": "much"})
    assert refused.status_code == 400
    assert "must be a number" in refused.content.decode()
    earlier = {"usd_hour": "0.5", "since": "2026-11-01", "source": "the bill"}
    for content in (earlier, {"usd_hour": "1.5"}):
        assert alice.post("/costs/tiers/redis:r:1/", content).status_code == 302
    assert "$1.50/h" in page(people.charlie, "/costs/tiers/")
    form = page(people.alice, "/costs/tiers/redis:r:1/")
    assert "2026-11-01" in form
    assert "the bill" in form
    no_day = alice.post("/costs/tiers/redis:r:1/", {"usd_hour": "1.5", "since": "soon"})
    assert "must be a date such as 2026-11-21" in no_day.content.decode()
    assert client_of(people.charlie).get("/costs/tiers/redis:r:1/").status_code == 403
    assert alice.post("/costs/tiers/redis:r:1/forget/").status_code == 302
    assert ">removed<" in page(people.alice, "/costs/tiers/redis:r:1/")
    assert "$1.50" not in page(people.charlie, "/costs/tiers/")


def test_recent_costs_by_team_and_tag(one: Endpoint, people: Cast) -> None:
    Endpoint.objects.update(spec={**one.spec, "tags": {"app": "search"}})
    for query in ("?by=tag:app", "?by=machine", "?tag=app%3Dsearch"):
        assert "search" in page(people.charlie, f"/costs/{query}")
    assert "No endpoints" in page(people.charlie, "/costs/?tag=app%3Dother")
    assert "No endpoints" in page(people.charlie, "/costs/?team=nobody")


@pytest.mark.parametrize(
    "url", ["/costs/", "/costs/reports/", "/costs/reports/2026-11/", "/costs/budgets/"]
)
def test_queries_do_not_grow_with_rows(
    stub_prometheus: StubPrometheus, measured: Endpoint, people: Cast, url: str
) -> None:
    for number in range(5):
        Budget.objects.create(name=f"b{number}", usd=number + 1)
        stub_prometheus.used[f"gone-{number}"] = stub_prometheus.used["one"]
    hours.add_hour(stub_prometheus, NOON)
    client = client_of(people.charlie)
    check(client, url, KEPT)
