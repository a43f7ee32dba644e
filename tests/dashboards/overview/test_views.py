"""Overview, proof runs and their REST: permissions, state and messages."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from console.audit.models import AuditEvent
from console.audit.record import record
from dashboards import actions, endpoint_runs
from dashboards.alerts.evaluation.firing_alerts import FiringAlert, FiringAlerts
from dashboards.models import ProofRun
from dashboards.prometheus.sources import selectors as connections
from dashboards.proof import cache_proof
from endpoints.keys import actions as keys_actions
from endpoints.models import Endpoint, EndpointStatus
from endpoints.refusals import ConflictError
from tests.dashboards.overview.test_key_figures import Answers
from tests.dashboards.proof.test_cache_proof import ProofWorkers
from tests.support.console import browser, make_endpoint, person, pretend_ready, program
from tests.support.query_counts import check

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).with_name("overview_query_counts.json")
L2 = {"l1": {"enabled": True}, "l2": {"enabled": True, "backend": "tieredstorage"}}
WORKERS = {f"demo-worker-{i}": f"http://127.0.0.1:{i + 1}" for i in range(2)}


@pytest.fixture
def demo_endpoint() -> Endpoint:
    endpoint = make_endpoint(replicas=2, cache=L2)
    return pretend_ready(endpoint, url="http://127.0.0.1:9", workers=WORKERS)


def queued() -> ProofRun:
    return actions.start_proof(person("operator"), "demo")


def test_empty_console_lists_the_first_steps() -> None:
    text = browser("operator").get("/").text
    assert "First steps" in text
    assert "Create endpoint" in text
    viewer = browser("viewer").get("/").text
    assert "requires the operator role" in viewer
    assert "Create endpoint" not in viewer


def test_first_steps_are_shown_until_done_or_dismissed() -> None:
    operator = browser("operator")
    text = operator.get("/").text
    assert 'data-done="no"' in text
    assert "First endpoint" in text
    assert '<details class="card mb-3 guide" aria-labelledby="guide-title" open>' in text
    endpoint = make_endpoint()
    text = operator.get("/").text
    assert "First steps" in text
    assert '<details class="card mb-3 guide" aria-labelledby="guide-title">' in text, "folded"
    assert "Next: Metrics" in text
    undone = text.count('data-done="no"')
    EndpointStatus.objects.filter(pk=endpoint.pk).update(served_once=True)
    keys_actions.create(person("operator"), "demo", {"name": "my program"})
    assert operator.get("/").text.count('data-done="no"') == undone - 2
    operator.post("/overview/guide/")
    hidden = operator.get("/").text
    assert "guide-title" not in hidden
    assert "Show first steps" in hidden
    assert "guide-title" in browser("admin").get("/").text, "others see it still"
    operator.post("/overview/guide/", {"show": "1"})
    assert "guide-title" in operator.get("/").text


def test_every_phase_is_counted_and_links_to_its_endpoints(demo_endpoint: Endpoint) -> None:
    broken = make_endpoint("broken")
    EndpointStatus.objects.filter(pk=broken.pk).update(
        phase="Failed", reason="WorkersCrashLooping", message="It <died>.", remedy="Look at it."
    )
    for text in (browser("viewer").get("/").text, browser("viewer").get("/overview/now").text):
        for phase in ("Failed", "Degraded", "Ready"):
            assert f'href="/endpoints/?phase={phase}"' in text
        for words in ("WorkersCrashLooping", "It &lt;died&gt;.", "Look at it.", "endpoint/broken"):
            assert words in text
    EndpointStatus.objects.filter(pk=broken.pk).update(phase="Paused")
    healthy = browser("viewer").get("/overview/now").text
    assert 'href="/endpoints/?phase=Paused"' in healthy
    assert "No unhealthy endpoints" in browser("viewer").get("/overview/now").text


def test_changes_of_deleted_endpoints_have_no_link(demo_endpoint: Endpoint) -> None:
    make_endpoint("gone")
    text = browser("viewer").get("/overview/now").text
    assert 'href="/endpoints/gone/"' in text
    Endpoint.objects.filter(name="gone").delete()
    text = browser("viewer").get("/overview/now").text
    assert "endpoint/gone" in text
    assert 'href="/endpoints/gone/"' not in text
    assert 'href="/endpoints/demo/"' in text


def test_charts_come_before_the_changes_and_logins_are_none(demo_endpoint: Endpoint) -> None:
    person("admin")
    record(None, "user.login", "user/admin", {})
    record(None, "user.role", "user/admin", {})
    page = browser("viewer").get("/").text
    assert 0 < page.index("data-panel") < page.index('id="changes"')
    assert "user.role" in page and "user.login" not in page


def test_outdated_figures_are_marked(demo_endpoint: Endpoint) -> None:
    viewer = browser("viewer")
    assert "data-stale" not in viewer.get("/overview/now").text
    late = timezone.now() - timedelta(minutes=4)
    EndpointStatus.objects.update(updated_at=late)
    text = viewer.get("/overview/now").text
    assert "4 min" in text
    assert "data-stale" in text
    assert "data-stale" in viewer.get("/endpoints/demo/head/").text


def test_overview_needs_a_constant_number_of_queries(demo_endpoint: Endpoint) -> None:
    for n in range(12):
        made = make_endpoint(f"more-{n}")
        EndpointStatus.objects.filter(pk=made.pk).update(phase="Failed")
    for url in ("/", "/overview/now", "/overview/numbers", "/overview/money"):
        check(browser("admin"), url, KEPT)


def test_without_prometheus_the_key_figures_have_one_notice(demo_endpoint: Endpoint) -> None:
    text = browser("viewer").get("/overview/numbers").text
    assert text.count("Metrics unavailable") == 1
    assert "Current hourly cost" in text, "prices need no Prometheus"
    assert "TTFT" not in text
    assert "Cache savings unknown" in browser("viewer").get("/overview/money").text


def test_key_figures_describe_their_change(
    demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "fleet", Answers)
    text = browser("viewer").get("/overview/numbers").text
    for label in ("Requests/s", "Cache hit rate (prompt tokens)", "TTFT p90"):
        assert label in text
    assert "5.0 points lower than in the previous hour, worse" in text
    assert "key-figure-worse" in text
    assert text.count("<polyline") == 6, "three lines, each with a gap"


def test_refresh_replaces_the_changes_too(demo_endpoint: Endpoint) -> None:
    viewer = browser("viewer")
    assert 'id="changes"' in viewer.get("/").text
    assert "hx-swap-oob" not in viewer.get("/").text
    assert "hx-swap-oob" in viewer.get("/overview/now").text


def test_charts_cover_the_hour_of_the_key_figures(demo_endpoint: Endpoint) -> None:
    viewer = browser("viewer")
    assert "/overview/data?range=1h" in viewer.get("/").text
    assert "/overview/data?range=6h" in viewer.get("/?range=6h").text


@pytest.mark.parametrize(("count", "shown"), [(1, 1), (7, 5)])
def test_alerts_are_coloured_by_severity_and_bounded(count: int, shown: int) -> None:
    alerts = [
        FiringAlert(f"Rule{n}", "", "", severity, timezone.now(), "", "")
        for n, severity in zip(range(count), ["page", *["ticket"] * 6], strict=False)
    ]
    context = {"firing": FiringAlerts(tuple(alerts)), "existing": frozenset()}
    text = render_to_string("dashboards/htmx/alerts.html", context)
    assert text.count("data-alert=") == shown
    assert ("View all 7" in text) == (count == 7)
    assert f"{count} firing alert{'s' if count > 1 else ''}</h2>" in text
    assert text.count("bg-red-lt") == 1
    assert text.count("bg-orange-lt") == shown - 1


def test_page_links_endpoints_without_prometheus(demo_endpoint: Endpoint) -> None:
    text = browser("viewer").get("/").text
    assert demo_endpoint.get_absolute_url() in text
    assert "No run on demo yet" in text
    assert 'action="/overview/proof/"' not in text, "a viewer gets no button"
    data = browser("viewer").get("/overview/data").json()
    assert {panel["id"] for panel in data["panels"]} == {"sources", "ttft"}


def test_proof_runs_from_the_button_to_the_result(demo_endpoint: Endpoint) -> None:
    operator = browser("operator")
    started = operator.post(
        "/overview/proof/", {"endpoint": "demo"}, headers={"HX-Request": "true"}
    )
    assert 'hx-trigger="every 1s"' in started.text
    run = ProofRun.objects.get()
    endpoint_runs.run_proof(str(run.pk), lambda _endpoint: ProofWorkers())
    run.refresh_from_db()
    assert (run.state, run.proved, len(run.shots)) == ("done", True, 3)
    done = operator.get("/overview/proof/demo/", headers={"HX-Request": "true"}).text
    assert "Passed on demo" in done
    assert "L2 576" in done
    assert "the times are not measurements" in done, "simulated workers are named"
    assert "every 1s" not in done, "a finished run is not asked for any more"
    assert "<option selected>demo</option>" in done, "the polled card keeps its picker"
    assert AuditEvent.objects.filter(verb="proof.start", target="endpoint/demo").count() == 1


def test_endpoint_page_has_its_own_figures_and_proof(demo_endpoint: Endpoint) -> None:
    operator = browser("operator")
    page = operator.get("/endpoints/demo/").text
    assert 'hx-get="/dashboards/endpoints/demo/key-figures"' in page
    assert 'hx-get="/overview/proof/demo/?one=1"' in page
    figures = operator.get("/dashboards/endpoints/demo/key-figures").text
    assert 'href="/dashboards/endpoints/demo/"' in figures
    assert "/overview/money" not in figures, "the fleet's saving"
    card = operator.get("/overview/proof/demo/?one=1", headers={"HX-Request": "true"}).text
    assert "<select" not in card
    form = {"endpoint": "demo", "one": "1"}
    live = operator.post("/overview/proof/", form, headers={"HX-Request": "true"}).text
    assert 'hx-get="/overview/proof/demo/?one=1"' in live, "what is polled has no picker either"


def test_failed_proof_shows_its_reason(demo_endpoint: Endpoint) -> None:
    run = queued()
    workers = ProofWorkers(l2_after_s=1e9, sources=[("", 0), ("device", 576), ("", 0)])
    endpoint_runs.run_proof(str(run.pk), lambda _endpoint: workers)
    text = browser("viewer").get("/").text
    assert "Not passed on demo" in text
    assert "L2 miss on demo-worker-1" in text


def test_second_run_waits_for_the_first(demo_endpoint: Endpoint) -> None:
    queued()
    with pytest.raises(ConflictError, match="already running"):
        queued()
    assert ProofRun.objects.count() == 1


def test_redelivered_message_makes_one_run(demo_endpoint: Endpoint) -> None:
    run = queued()
    sets_of_workers = [ProofWorkers(), ProofWorkers()]
    for workers in sets_of_workers:
        endpoint_runs.run_proof(str(run.pk), lambda _endpoint, workers=workers: workers)
    assert [len(workers.prompts_sent) for workers in sets_of_workers] == [3, 0]


def test_run_of_a_dead_worker_blocks_nothing(demo_endpoint: Endpoint) -> None:
    run = queued()
    late = timezone.now() - timedelta(seconds=actions.ABANDONED_S + 1)
    ProofRun.objects.filter(pk=run.pk).update(state="running", touched_at=late)
    assert "stopped before the end" in browser("viewer").get("/overview/proof/demo/").text
    assert queued().pk != run.pk


def test_crash_ends_a_run(demo_endpoint: Endpoint) -> None:
    run = queued()

    def broken(_endpoint: Endpoint) -> Any:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        endpoint_runs.run_proof(str(run.pk), broken)
    run.refresh_from_db()
    assert run.state == "failed"
    assert run.message


def test_unready_endpoint_is_rejected() -> None:
    make_endpoint()
    page = browser("operator").post("/overview/proof/", {"endpoint": "demo"}, follow=True)
    assert "nothing to measure" in page.text
    assert not ProofRun.objects.exists()


def test_run_needs_an_operator(demo_endpoint: Endpoint) -> None:
    assert browser("viewer").post("/overview/proof/", {"endpoint": "demo"}).status_code == 403
    assert program("viewer").post("/api/v1/endpoints/demo/proof/").status_code == 403
    assert not ProofRun.objects.exists()


def test_rest(demo_endpoint: Endpoint) -> None:
    client = program("operator")
    assert client.get("/api/v1/endpoints/demo/proof/").status_code == 404
    started = client.post("/api/v1/endpoints/demo/proof/")
    assert (started.status_code, started.json()["state"]) == (202, "queued")
    again = client.post("/api/v1/endpoints/demo/proof/")
    assert (again.status_code, again.json()["code"]) == (409, "proof_running")
    endpoint_runs.run_proof(started.json()["id"], lambda _endpoint: ProofWorkers())
    latest = program("viewer").get("/api/v1/endpoints/demo/proof/").json()
    assert latest["proved"]
    assert latest["shots"][2]["sources"] == {"L2": 576}
    assert client.post("/api/v1/endpoints/nope/proof/").status_code == 404


def test_console_key_is_in_no_page_and_no_row(demo_endpoint: Endpoint) -> None:
    from endpoints import selectors

    key = selectors.console_key(demo_endpoint)
    assert key
    run = queued()
    assert key not in repr(endpoint_runs.make_live_tools(demo_endpoint))
    endpoint_runs.run_proof(str(run.pk), lambda _endpoint: ProofWorkers())
    assert key not in browser("admin").get("/").text
    assert key not in str(ProofRun.objects.values().get())


def test_queries_do_not_grow_with_endpoints(demo_endpoint: Endpoint) -> None:
    client = browser("viewer")
    client.get("/")
    with CaptureQueriesContext(connection) as few:
        client.get("/")
    for number in range(5):
        make_endpoint(f"more-{number}")
    with CaptureQueriesContext(connection) as many:
        client.get("/")
    assert len(many) == len(few)


def test_bars_are_relative_to_the_slowest_and_always_visible() -> None:
    shots = [
        {"step": "cold", "ttft_s": 4.0, "sources": {}},
        {"step": "again", "ttft_s": 0.001, "sources": {"device": 9}, "ratio": 0.00025},
        {"step": "other", "ttft_s": None, "sources": None, "error": "x"},
    ]
    cold, again, other = cache_proof.make_rows(shots)
    rows = (cold, again, other)
    assert [row["width"] for row in rows] == [100.0, 1.0, 0.0]
    assert [row["source"] for row in rows] == ["computed", "device 9", "not measured"]
    assert again["ratio_percent"] == 0


@pytest.mark.parametrize(
    ("saved", "cached", "words"),
    [
        (12.5, 10, "Cache savings"),
        (-0.2, 10, "text-danger"),
        (None, 4_490_000, "4.49 M cached tokens"),
        (None, 0, "No cached tokens in 24 h"),
    ],
)
def test_tile_counts_cached_tokens_until_savings_are_known(
    saved: float | None, cached: int, words: str
) -> None:
    context = {"report": {"saved": saved, "fault": None}, "cached_tokens": cached}
    assert words in render_to_string("dashboards/htmx/money.html", context)
