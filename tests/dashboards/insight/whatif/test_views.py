"""What-if pages and REST: content, permissions and errors."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.test import Client

from console.accounts.models import Membership, Team, User
from console.audit.models import AuditEvent
from dashboards.insight.whatif import actions, figures, inputs, lifecycle
from dashboards.insight.whatif.models import WhatIf
from dashboards.insight.whatif.scopes import scope_names
from endpoints.models import Endpoint
from endpoints.router.models import Canary
from endpoints.runs import RunState
from tests.dashboards.insight.whatif.conftest import GIVEN
from tests.dashboards.insight.whatif.recorded_traffic import WORKERS, recorded_traffic
from tests.support.console import browser, make_endpoint, person, pretend_ready, program

PAGE = "/what-if/endpoints/demo/"
DAY = timedelta(days=1)
REST = "/api/v1/endpoints/demo/what-if/"


def text(client: Client, url: str, **options: Any) -> str:
    answer = client.get(url, **options)
    assert answer.status_code == 200, url
    return answer.content.decode()


def test_a_form_with_the_present_values_starts_an_analysis(endpoint: Endpoint) -> None:
    client = browser("operator")
    page = text(client, f"{PAGE}new/")
    assert 'name="replicas" value="3"' in page
    assert "Request rate (× recorded)" in page
    values = {**inputs.present_values(endpoint), **GIVEN, "replicas": 6, "price_usd_hour": "2.5"}
    typed = {name: "" if value is None else value for name, value in values.items()}
    answer = client.post(f"{PAGE}new/", {**typed, "begin": "", "end": "", "title": "Six"})
    row = WhatIf.objects.get()
    assert answer.headers["Location"] == row.get_absolute_url()
    assert (row.title, row.candidate["replicas"], row.present["replicas"]) == ("Six", 6, 3)
    assert row.present["price_usd_hour"] == 2.5
    event = AuditEvent.objects.filter(verb="what-if.start").get()
    assert event.changes["changes"] == {"Replicas": [3, 6]}


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ({"replicas": "many"}, "Use a whole number from 1 to 256."),
        ({"begin": "yesterday"}, "Enter a date and time"),
        ({"begin": "2026-11-23T10:00", "end": "2026-11-23T09:00"}, "The period is empty."),
        ({"begin": "2026-01-01T10:00", "end": "2026-11-23T09:00"}, "The period is too long."),
        ({"trace": "other"}, "There is no imported trace"),
        ({"title": "x" * 81}, "The title is too long."),
    ],
)
def test_nonsense_is_answered_at_the_field(
    endpoint: Endpoint, typed: dict[str, str], message: str
) -> None:
    answer = browser("operator").post(f"{PAGE}new/", typed)
    assert answer.status_code == 400
    assert message in answer.content.decode()
    assert not WhatIf.objects.exists()


def test_uncertain_times_near_saturation_are_stated(finished: WhatIf) -> None:
    client, url = browser("viewer"), finished.get_absolute_url()
    assert finished.result["ttft_p90_spread"] < figures.QUEUEING
    assert "Queues form" not in text(client, url)
    WhatIf.objects.update(result=finished.result | {"ttft_p90_spread": 0.4})
    assert "Queues form: TTFT p90 differs by 40% between simulations" in text(client, url)


def test_a_finished_analysis_shows_prediction_and_backtest(finished: WhatIf) -> None:
    client = browser("viewer")
    page = text(client, finished.get_absolute_url())
    for expected in (
        "Prediction",
        "Backtest",
        "TTFT p90",
        "Replicas: 3 → 2",
        "worse",
        "Engine step",
    ):
        assert expected in page, expected
    assert 'hx-trigger="every 1s"' not in page
    assert "Effect of cache isolation" not in page
    listed = text(client, PAGE)
    assert "Replicas 3 → 2" in listed
    assert "New analysis" not in listed


def test_a_refusal_withholds_the_prediction(finished: WhatIf) -> None:
    result = finished.result
    result["backtest"]["refusal"] = "The model misses the measured TTFT p50 by +60% (limit ±25%)."
    result["present"] = result["candidate"] = result["change"] = None
    finished.save()
    page = text(browser("viewer"), finished.get_absolute_url())
    assert "No answer. The model misses" in page
    assert "Prediction" not in page
    assert "No answer" in text(browser("viewer"), PAGE)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("slower", [1.0, 1.6])
def test_a_canary_of_the_period_is_named(
    queued: WhatIf, monkeypatch: pytest.MonkeyPatch, known: bool, slower: float
) -> None:
    """On the page, in REST and the CLI; with the remedy where there is no answer."""
    begin, end = queued.begin + timedelta(minutes=9), queued.begin + timedelta(minutes=30)
    fields = {"control": "prefixaware", "state": "stopped", "share": 0.25}
    rows = ((begin, end, "kvaware"), (begin - DAY, end - DAY, "session"), (end + DAY, None, "lru"))
    for started, ended, strategy in rows:
        times = {"started_at": started, "ended_at": ended}
        Canary.objects.create(endpoint=queued.endpoint, strategy=strategy, **times, **fields)
    trace = recorded_traffic(300, slower=slower)
    if not known:
        trace = replace(trace, requests=[replace(one, strategy="") for one in trace.requests])
    monkeypatch.setattr(lifecycle, "load_trace", lambda *_period: trace)
    WhatIf.claim(queued.pk)
    lifecycle.execute(queued.pk)
    named = "(kvaware for 25% of the sessions instead of prefixaware, "
    named += f"{begin:%Y-%m-%d %H:%M} UTC to {end:%Y-%m-%d %H:%M} UTC)."
    how = "with the strategy that placed it." if known else "does not name the strategy of each"
    remedy = "Choose a period without the canary."
    found = program("viewer").get(f"{REST}{queued.pk}/").json()["result"]
    out = io.StringIO()
    call_command("emberline", "endpoint", "whatif", "get", "demo", str(queued.pk), stdout=out)
    page = text(browser("viewer"), queued.get_absolute_url())
    shown = found["backtest"]["refusal"] if slower > 1 else found["canary"]
    for one in (shown, out.getvalue(), page):
        assert named in one
        assert how in one
        assert (remedy in one) == (slower > 1)
        assert "session for" not in one


def test_present_values_are_data_on_the_command_line(endpoint: Endpoint) -> None:
    command = ["emberline", "endpoint", "whatif", "present", "demo"]
    for form, parse in (([], yaml.safe_load), (["-o", "json"], json.loads)):
        out = io.StringIO()
        call_command(*command, *form, stdout=out)
        assert parse(out.getvalue()) == program("viewer").get(f"{REST}present/").json()
        assert not out.getvalue().startswith("{'"), "a document, not a Python object"


def test_a_live_analysis_refreshes_itself_and_can_be_cancelled(queued: WhatIf) -> None:
    client = browser("operator")
    assert 'hx-trigger="every 1s"' in text(client, queued.get_absolute_url())
    client.post(f"{queued.get_absolute_url()}cancel/")
    queued.refresh_from_db()
    assert queued.state == RunState.CANCELLED
    again = client.post(f"{queued.get_absolute_url()}cancel/", follow=True)
    assert "had ended already" in again.text
    client.post(f"{queued.get_absolute_url()}delete/")
    assert not WhatIf.objects.exists()
    verbs = set(AuditEvent.objects.values_list("verb", flat=True))
    assert {"what-if.cancel", "what-if.delete"} <= verbs


def test_candidates_are_compared(finished: WhatIf) -> None:
    other = WhatIf.objects.get(pk=finished.pk)
    other.pk = None
    other.title = "Second"
    other._state.adding = True
    other.id = "00000000-0000-0000-0000-000000000001"  # type: ignore[assignment]
    other.save()
    client = browser("viewer")
    url = f"{PAGE}compare/?run={finished.pk}&run={other.pk}"
    page = text(client, url)
    assert "Second" in page and "Cost (USD/h)" not in page and "TTFT p99" in page
    assert client.get(f"{PAGE}compare/?run={finished.pk}").status_code == 302
    assert client.get(f"{PAGE}compare/?run=nonsense&run=1").status_code == 404


def test_without_a_recording_nothing_starts(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "recorded_hours", lambda _endpoint: [])
    client = browser("operator")
    assert "Traffic recording is off" in text(client, PAGE)
    assert "Traffic recording is off" in text(client, f"{PAGE}new/")
    answer = program("operator").post(REST, GIVEN, format="json")
    assert answer.status_code == 409
    assert "Switch on its traffic recording" in str(answer.json())


def test_a_full_queue_is_refused(queued: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_LIVE", 1)
    answer = program("operator").post(REST, GIVEN, format="json")
    assert answer.status_code == 409


def test_rest_starts_reads_cancels_and_deletes(endpoint: Endpoint) -> None:
    client = program("operator")
    assert client.get(f"{REST}present/").json()["replicas"] == 3
    made = client.post(
        REST,
        {**GIVEN, "replicas": 4, "begin": "2026-11-23T10:00:00Z", "end": "2026-11-23T11:00:00Z"},
        format="json",
    )
    assert made.status_code == 201, made.content
    one = f"{REST}{made.json()['id']}/"
    assert client.get(one).json()["candidate_values"]["replicas"] == 4
    assert client.get(REST, {"state": "queued"}).json()["results"][0]["result"] is None
    assert client.delete(one).status_code == 409
    assert client.post(f"{one}cancel/").json()["state"] == "cancelled"
    assert client.delete(one).status_code == 204
    assert client.get(one).status_code == 404
    for body in ({"title": [5]}, {"begin": "soon"}, {"replicas": "x"}, []):
        assert client.post(REST, body, format="json").status_code == 400


def test_viewers_read_and_other_teams_see_nothing(queued: WhatIf) -> None:
    one = f"{REST}{queued.pk}/"
    viewer = program("viewer")
    assert viewer.get(one).status_code == 200
    assert viewer.post(REST, {}, format="json").status_code == 403
    assert viewer.post(f"{one}cancel/").status_code == 403
    assert browser("viewer").get(f"{PAGE}new/").status_code == 403
    team = Team.objects.create(name="other", slug="other")
    stranger = User.objects.create_user("stranger", password="x")
    Membership.objects.create(user=stranger, team=team, role="operator")
    client = Client()
    client.force_login(stranger)
    for url in (PAGE, f"{PAGE}new/", queued.get_absolute_url(), f"{PAGE}compare/"):
        assert client.get(url).status_code == 404


def test_old_analyses_are_deleted(queued: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    WhatIf.objects.update(state=RunState.DONE)
    monkeypatch.setattr(actions, "KEPT", 0)
    actions.start(person("operator"), "demo", actions.WhatIfRequest(GIVEN))
    assert not WhatIf.objects.filter(pk=queued.pk).exists()


ISOLATION = f"{PAGE}isolation/"


@pytest.fixture
def shared(db: Any, monkeypatch: pytest.MonkeyPatch, recorded: None) -> Endpoint:
    """An endpoint without isolation; its recording has the conversations of two keys."""
    trace = recorded_traffic(300)
    rows = [replace(one, key=("", "gone")[number % 2]) for number, one in enumerate(trace.requests)]
    cache = {"l1": {"enabled": False}}
    made = make_endpoint(
        "demo", replicas=WORKERS, cache=cache, routing={"cache_isolation": "shared"}
    )
    made = pretend_ready(made)
    known = next(one for one in scope_names(made) if one.startswith("key "))
    rows = [replace(one, key=one.key or known[4:]) for one in rows]
    found = replace(trace, requests=rows, isolation="shared")
    monkeypatch.setattr(lifecycle, "load_trace", lambda *_period: found)
    monkeypatch.setattr(
        inputs, "present_values", lambda one: {**_present(one), **GIVEN, "price_usd_hour": 2.0}
    )
    return made


_present = inputs.present_values


def preview(client: Client, isolation: str) -> str:
    answer = client.post(
        ISOLATION, {"routing.cache_isolation": isolation}, headers={"HX-Request": "true"}
    )
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_editor_previews_an_isolation(shared: Endpoint) -> None:
    client = browser("operator")
    form = text(client, "/endpoints/demo/edit/")
    assert f'hx-post="{ISOLATION}"' in form
    assert 'hx-target="#isolation-preview" hx-sync="this:drop">' in form  # keeps the focus
    assert f'hx-post="{ISOLATION}"' not in text(client, "/endpoints/demo/clone/")
    page = preview(client, "key")
    row = WhatIf.objects.get()
    poll = f"{row.get_absolute_url()}?preview"
    assert f'hx-get="{poll}"' in page
    assert (row.candidate["isolation"], row.present["isolation"]) == ("key", "shared")
    assert WhatIf.claim(row.pk)
    lifecycle.execute(row.pk)
    page = text(client, poll)
    assert "Prefill (s/h)" in page and "Cost (USD/month)" in page
    assert "hx-get" not in page
    page = text(client, row.get_absolute_url())
    for expected in ("Effect of cache isolation by key", "Key console", "Key gone", "All requests"):
        assert expected in page, expected
    assert "Prefixes sent by several scopes" in page
    row.refresh_from_db()
    WhatIf.objects.update(result=row.result | {"ttft_p90_spread": 0.4})
    assert "Queues form: TTFT p90 differs by 40%" in text(client, poll)
    assert AuditEvent.objects.filter(verb="what-if.start").exists()


@pytest.mark.parametrize(
    ("chosen", "message"),
    [("shared", "Choose a stricter one"), ("x", "Use one of"), ("", "Use one of")],
)
def test_a_preview_that_cannot_start_states_the_reason(
    shared: Endpoint, chosen: str, message: str
) -> None:
    assert message in preview(browser("operator"), chosen)
    assert not WhatIf.objects.exists()


def test_a_preview_without_keys_in_the_recording_states_it(
    shared: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = browser("operator")
    preview(client, "group")
    row = WhatIf.objects.get()
    monkeypatch.setattr(lifecycle, "load_trace", lambda *_period: recorded_traffic(300))
    WhatIf.claim(row.pk)
    lifecycle.execute(row.pk)
    page = text(client, f"{row.get_absolute_url()}?preview")
    assert "does not name the API keys" in page
    monkeypatch.setattr(inputs, "recorded_hours", lambda _endpoint: [])
    assert "Switch on its traffic recording" in preview(client, "key")


def test_less_isolation_than_recorded_is_refused(endpoint: Endpoint) -> None:
    answer = program("operator").post(REST, {**GIVEN, "isolation": "shared"}, format="json")
    assert answer.status_code == 400
    (problem,) = answer.json()["errors"]
    assert (problem["field"], problem["code"]) == ("isolation", "not_recorded")


def test_previews_need_the_operator_role(shared: Endpoint) -> None:
    assert browser("viewer").post(ISOLATION, {}).status_code == 403
