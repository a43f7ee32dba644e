"""Advice page and REST: rows, apply links, permissions, refusal and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.test import Client

from console.accounts.models import Membership, Team, User
from console.audit.models import AuditEvent
from dashboards.insight.advisor import selectors
from dashboards.insight.advisor.models import Advice
from dashboards.insight.whatif import inputs, lifecycle
from dashboards.insight.whatif.models import WhatIf
from endpoints.models import Endpoint
from endpoints.runs import RunState
from tests.dashboards.insight.advisor.surveyed import surveyed
from tests.dashboards.insight.whatif.recorded_traffic import recorded_traffic
from tests.support.console import browser, program
from tests.support.query_counts import check as check_queries

PAGE = "/advisor/endpoints/demo/"
REST = "/api/v1/endpoints/demo/advice/"


def text(client: Client, url: str = PAGE) -> str:
    answer = client.get(url)
    assert answer.status_code == 200, url
    return answer.content.decode()


def test_a_start_queues_a_survey_of_each_kind_of_change(endpoint: Endpoint) -> None:
    client = browser("operator")
    assert "Compute advice" in text(client)
    answer = client.post(PAGE, {"price_usd_hour": "2.5", "kv_kib": "", "device_tokens": "60000"})
    assert answer.headers["Location"] == PAGE
    advice = Advice.objects.get()
    run = advice.run
    assert run.present["price_usd_hour"] == 2.5
    changes = [{name for name in one if one[name] != run.present[name]} for one in run.candidates]
    for name in ({"strategy"}, {"replicas"}, {"l1_gib"}, {"l1_gib", "l2_gib"}):
        assert name in changes
    assert {"l2_gib"} not in changes  # L2 is filled through L1
    event = AuditEvent.objects.filter(verb="advice.start").get()
    assert event.changes["candidates"] == len(run.candidates)
    page = text(client)
    assert 'hx-trigger="every 1s"' in page
    assert "Compute advice" not in page
    assert client.post(PAGE).status_code == 409


def test_a_survey_is_computed_by_the_process_of_what_if_analyses(
    queued: Advice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "load_trace", lambda *_period: recorded_traffic(300))
    monkeypatch.setattr(lifecycle, "MAX_SURVEYED", 250)
    few = [one for one in queued.run.candidates if one["replicas"] == 2]
    WhatIf.objects.filter(pk=queued.run_id).update(candidates=few)
    assert WhatIf.claim(queued.run_id)
    lifecycle.execute(queued.run_id)
    result = Advice.objects.get().run.result
    assert result["requests"] == 250
    assert len(result["candidates"]) == 1
    assert result["candidates"][0]["change"]["ttft_p90_s"]["value"] > 0


def test_rows_are_ordered_by_money_and_link_to_filled_forms(finished: Advice) -> None:
    report = selectors.build_report(finished)
    money = [row.money.value for row in report.advised if row.money is not None]
    assert money == sorted(money, reverse=True)
    assert {row.key for row in report.advised} >= {"layout=ab12"}
    assert {row.key for row in report.trade_offs} >= {"salts", "replicas=2"}
    assert {row.key for row in report.unclear} >= {"strategy=roundrobin"}
    client = browser("operator")
    page = text(client)
    for expected in ("Prompt layout", "Cache salts", "Replicas 3 → 2", "1 worker fewer",
                     "Value of a GiB", "Backtest", "+$2,920.00", "high"):  # fmt: skip
        assert expected in page, expected
    (row,) = [one for one in report.trade_offs if one.key == "replicas=2"]
    (link,) = selectors.list_apply_links(finished, row)
    form = text(client, link.url)
    assert "The link filled in these changes" in form
    assert 'name="replicas" value="2"' in form
    assert "Replicas 3 → 2" in parse_qs(urlsplit(link.url).query)["note"][0]


def test_a_refused_backtest_leaves_the_rows_of_the_ledger(finished: Advice) -> None:
    WhatIf.objects.update(result=surveyed(slower=1.6))
    page = text(browser("viewer"))
    assert "No advice from the recording. The model misses" in page
    assert "Prompt layout" in page
    assert "Replicas 3" not in page and "Value of a GiB" not in page


def test_a_failed_survey_states_its_cause(queued: Advice) -> None:
    message = "Only 3 recorded requests have a worker and a TTFT; 100 are needed."
    WhatIf.objects.update(state=RunState.FAILED, message=message)
    assert message in text(browser("viewer"))


def test_without_a_recording_the_page_names_the_remedy(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "default_period", lambda _endpoint: None)
    page = text(browser("operator"))
    assert "Traffic recording is off" in page
    assert "Start recording" in page
    assert "Compute advice" not in page
    answer = program("operator").post(REST, {}, format="json")
    assert answer.status_code == 409
    assert "Switch on its traffic recording" in str(answer.json())


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"kv_kib": "much"}, "Use a number from 0.1"),
        ({"price_usd_hour": "-1"}, "Use a number from 0"),
    ],
)
def test_nonsense_is_answered_at_the_field(
    endpoint: Endpoint, typed: dict[str, str], message: str
) -> None:
    answer = browser("operator").post(PAGE, typed)
    assert answer.status_code == 400
    assert message in answer.content.decode()
    assert not WhatIf.objects.exists()


def test_unknown_prices_and_sizes_are_stated(finished: Advice) -> None:
    present = {**finished.run.present, "kv_kib": None, "price_usd_hour": None}
    WhatIf.objects.update(present=present)
    page = text(browser("viewer"))
    assert "the KV cache per token of the model is unknown" in page
    assert "the price of a worker is unknown" in page


def test_a_cause_in_the_notes_is_not_repeated_in_each_row(finished: Advice) -> None:
    why = "m7 has no price (USD/h)."
    Advice.objects.update(facts={**finished.facts, "worker_why": why})
    WhatIf.objects.update(present={**finished.run.present, "price_usd_hour": None})
    assert text(browser("viewer")).count(why) == 1


def test_rest_starts_reads_and_cancels(endpoint: Endpoint) -> None:
    client = program("operator")
    missing = client.get(REST)
    assert missing.status_code == 404
    assert "--new" in str(missing.json())
    made = client.post(REST, {"price_usd_hour": 4}, format="json")
    assert made.status_code == 201, made.content
    assert (made.json()["state"], made.json()["rows"]) == ("queued", [])
    assert client.post(REST, {}, format="json").status_code == 409
    assert client.post(f"{REST}cancel/").json()["state"] == "cancelled"
    for body in ({"kv_kib": "x"}, {"strategy": "session"}, []):
        assert client.post(REST, body, format="json").status_code == 400


def test_rest_rows_have_figures_and_forms(finished: Advice) -> None:
    found = program("viewer").get(REST).json()
    by_key = {row["key"]: row for row in found["rows"]}
    row = by_key["replicas=2"]
    assert row["money"] == {"value": 2920.0, "low": 2920.0, "high": 2920.0}
    assert row["verdict"] == "trade_off"
    assert "/endpoints/demo/edit/?replicas=2" in row["apply"][0]
    assert by_key["salts"]["changes"][0]["after"] == "group"
    assert found["sizes"]["values"]


def test_viewers_read_and_other_teams_see_nothing(finished: Advice) -> None:
    viewer = browser("viewer")
    page = text(viewer)
    assert "Compute advice" not in page and "/endpoints/demo/edit/?" not in page
    assert viewer.post(PAGE).status_code == 403
    assert viewer.post(f"{PAGE}cancel/").status_code == 403
    assert program("viewer").post(REST, {}, format="json").status_code == 403
    team = Team.objects.create(name="other", slug="other")
    stranger = User.objects.create_user("stranger", password="x")
    Membership.objects.create(user=stranger, team=team, role="operator")
    client = Client()
    client.force_login(stranger)
    for url in (PAGE, REST):
        assert client.get(url).status_code == 404


def test_a_running_survey_is_cancelled(queued: Advice) -> None:
    browser("operator").post(f"{PAGE}cancel/")
    assert WhatIf.objects.get().state == RunState.CANCELLED
    assert "Compute advice" in text(browser("operator"))


def test_a_cancellation_after_the_end_is_rejected_with_the_reason(finished: Advice) -> None:
    page = browser("operator").post(f"{PAGE}cancel/", follow=True).content.decode()
    assert "The computation had ended already; nothing was cancelled." in page
    assert "being cancelled" not in page


def test_each_quarter_and_the_end_are_announced_once(queued: Advice) -> None:
    client = browser("operator")

    def part(announced: str) -> str:
        answer = client.get(PAGE, {"announced": announced}, headers={"HX-Request": "true"})
        return answer.content.decode()

    region = '<div id="advice-state" hx-swap-oob="innerHTML">'
    whole = text(client)
    assert 'role="status" id="advice-state"></div>' in whole and region not in whole
    assert f"{PAGE}?announced=Queued" in whole
    WhatIf.objects.update(state=RunState.RUNNING, stage="Calibration", share=0.1)
    assert f"{region}Computing advice, 0 %</div>" in part("Queued")
    WhatIf.objects.update(stage="Candidate 2 of 9, run 3 of 8", share=0.2)
    assert region not in part("Computing advice, 0 %")
    WhatIf.objects.update(share=0.26)
    assert f"{region}Computing advice, 25 %</div>" in part("Computing advice, 0 %")
    WhatIf.objects.update(state=RunState.FAILED, stage="", message="Too few.")
    assert f"{region}Advice: Failed. Too few.</div>" in part("Computing advice, 25 %")


def test_the_cancel_button_keeps_the_focus_over_updates(queued: Advice) -> None:
    assert 'id="cancel-advice"' in text(browser("operator"))  # htmx restores the focus by id


def test_surveys_are_not_listed_as_analyses(finished: Advice) -> None:
    listed: Any = program("viewer").get("/api/v1/endpoints/demo/what-if/").json()
    assert listed["results"] == []


def test_the_page_makes_a_constant_number_of_queries(finished: Advice) -> None:
    check_queries(browser("operator"), PAGE, Path(__file__).with_name("query_counts.json"))
