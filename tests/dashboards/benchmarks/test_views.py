"""Benchmark pages and REST: content, permissions and errors."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from console.accounts.models import Membership, Team, User
from dashboards.benchmarks.generator import files, traces
from dashboards.benchmarks.generator.job import Job
from dashboards.benchmarks.generator.samples import COLUMNS, Histogram, Series, result
from dashboards.benchmarks.models import Benchmark, BenchmarkData
from endpoints.models import Endpoint
from tests.dashboards.benchmarks.generator.test_comparison import run as samples
from tests.support import query_counts
from tests.support.console import browser, make_endpoint, person, pretend_ready, program

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).parent / "query_counts.json"
FORM = {
    "workload": "chat",
    "mode": "rate",
    "rate": "2",
    "duration_s": "30",
    "caches": "fresh",
    "understood": "on",
}


def ready(name: str = "demo") -> Endpoint:
    workers = {f"{name}-worker-0": "http://127.0.0.1:9", f"{name}-worker-1": "http://127.0.0.1:9"}
    return pretend_ready(make_endpoint(name), url="http://127.0.0.1:9", workers=workers)


def made(endpoint: Endpoint, mean_s: float = 0.2, **fields: Any) -> Benchmark:
    """An ended run with the output of a generator."""
    kept, series = samples(mean_s, int(1000 * mean_s)), Series()
    for sample in kept:
        series.ended(sample)
        series.at(sample.at).sent += 1
    series.at(3).tiers = {"device": 10.0, "computed": 5.0}
    progress = {
        "state": "done",
        "elapsed_s": 60.0,
        "sent": 240,
        "done": 240,
        "errors": {"http_503": 2},
        "examples": {"http_503": "full"},
        "in_flight": 0,
        "not_sent": 0,
        "stopped_by": "duration_s",
        "tiers": {"device": 10, "l1": 0, "l2": 0, "computed": 5},
        "unseen": {"demo-worker-1": "does not answer"},
        "series": series.document(),
        "now": {"ttft": {"p50": 0.2, "p90": 0.3}},
        "generator": {"cpu_share": 0.1, "late": False, "busy": False, "connections": 1},
    }
    facts = {"workers": 2, "strategy": "prefixaware", "generation": 1}
    run = Benchmark.objects.create(
        endpoint=endpoint,
        job=Job().as_json(),
        state="done",
        progress=progress,
        result=result(kept, Histogram(), 60),
        endpoint_facts=facts,
        simulated=True,
        finished_at=timezone.now(),
        started_by=person("operator"),
        **fields,
    )
    BenchmarkData.objects.create(run=run, samples=files.pack(kept))
    return run


def test_form_states_target_and_load() -> None:
    ready()
    html = browser("operator").get("/benchmarks/endpoints/demo/new/").content.decode()
    assert "demo-worker-0, demo-worker-1" in html
    assert "about 2" in html
    assert "requests/s" in html
    assert "Latency may increase for other users of this endpoint" in html
    assert 'name="understood"' in html


@pytest.mark.parametrize("workload", ["chat", "documents", "trace"])
@pytest.mark.parametrize("mode", ["rate", "concurrency"])
def test_each_workload_shows_only_its_fields(workload: str, mode: str) -> None:
    ready()
    url = f"/benchmarks/endpoints/demo/new/?workload={workload}&mode={mode}"
    html = browser("operator").get(url).content.decode()
    shown = {"chat": "turns", "documents": "documents", "trace": "prompt_limit"}
    for key, name in shown.items():
        assert (f'name="{name}"' in html) is (key == workload), name
    assert ('name="rate"' in html) is (mode == "rate" and workload != "trace")
    assert ('name="concurrency"' in html) is (mode == "concurrency")
    assert ("At most" in html) is True


def test_values_are_kept_when_the_workload_changes() -> None:
    ready()
    url = "/benchmarks/endpoints/demo/new/?workload=documents&mode=rate&duration_s=77"
    assert 'value="77"' in browser("operator").get(url).content.decode()


def test_submitted_run_is_started() -> None:
    ready()
    answer = browser("operator").post("/benchmarks/endpoints/demo/new/", {**FORM, "title": "Mine"})
    run = Benchmark.objects.get()
    assert answer.status_code == 302
    assert answer.headers["Location"] == run.get_absolute_url()
    assert (run.title, run.state, run.job["rate"]) == ("Mine", "queued", 2.0)
    page = browser("operator").get(run.get_absolute_url()).content.decode()
    assert "Queued" in page
    assert "Abort" in page


def test_start_needs_the_confirmation() -> None:
    ready()
    answer = browser("operator").post(
        "/benchmarks/endpoints/demo/new/", {k: v for k, v in FORM.items() if k != "understood"}
    )
    assert answer.status_code == 400
    assert "Confirm that you are allowed" in answer.content.decode()
    assert not Benchmark.objects.exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"rate": "0"}, "Request rate is too small. Enter a number from 0.01 to 2000."),
        ({"rate": "many"}, "not a number."),
        ({"turns": "1.5"}, "Enter an integer"),
        ({"warmup_s": "30"}, "so no request is counted."),
        ({"second": "nobody"}, "nobody"),
        ({"caches": "odd"}, "Choose one of fresh, shared."),
        ({"title": "x" * 81}, "80"),
    ],
)
def test_error_is_shown_at_its_field_and_input_is_kept(more: dict[str, str], message: str) -> None:
    ready()
    answer = browser("operator").post("/benchmarks/endpoints/demo/new/", {**FORM, **more})
    html = answer.content.decode()
    assert answer.status_code == 400, html
    assert message in html
    assert not Benchmark.objects.exists()
    name, value = next(iter(more.items()))
    if name in ("rate", "turns", "warmup_s"):
        assert f'value="{value}"' in html
        assert f'id="id_{name}_error"' in html


def test_trace_can_be_uploaded() -> None:
    ready()
    lines = traces.as_lines(traces.sample()[:7]).encode()
    form = {**FORM, "workload": "trace", "trace": SimpleUploadedFile("t.jsonl", lines)}
    answer = browser("operator").post("/benchmarks/endpoints/demo/new/", form)
    assert answer.status_code == 302
    run = Benchmark.objects.select_related("data").get()
    assert gzip.decompress(bytes(run.data.trace)) == lines
    assert len(run.trace_digest) == 16


def test_invalid_trace_is_rejected_with_its_line() -> None:
    ready()
    lines = b'{"timestamp": 1, "input_length": 5, "output_length": 1}\nnonsense\n'
    upload = SimpleUploadedFile("t.jsonl", lines)
    answer = browser("operator").post(
        "/benchmarks/endpoints/demo/new/", {**FORM, "workload": "trace", "trace": upload}
    )
    assert answer.status_code == 400
    assert "Line 2: The line is not JSON." in answer.content.decode()


def test_preview_starts_nothing() -> None:
    ready()
    ready("other")
    answer = browser("operator").post(
        "/benchmarks/endpoints/demo/outlook/", {**FORM, "second": "other"}
    )
    html = answer.content.decode()
    assert "other" in html
    assert "each" in html
    assert not Benchmark.objects.exists()
    wrong = browser("operator").post("/benchmarks/endpoints/demo/outlook/", {**FORM, "rate": "x"})
    assert "not a number" in wrong.content.decode()


def test_viewer_reads_and_starts_nothing() -> None:
    run = made(ready())
    client = browser("viewer")
    for url in ("/benchmarks/", "/benchmarks/endpoints/demo/", run.get_absolute_url()):
        assert client.get(url).status_code == 200
    html = client.get("/benchmarks/endpoints/demo/").content.decode()
    assert "New benchmark" not in html
    for url in (
        "/benchmarks/endpoints/demo/new/",
        "/benchmarks/endpoints/demo/outlook/",
        f"{run.get_absolute_url()}abort/",
        f"{run.get_absolute_url()}delete/",
    ):
        assert client.post(url, FORM).status_code == 403


def test_abort_of_an_ended_run_says_so() -> None:
    url = made(ready()).get_absolute_url()
    assert "had ended already" in browser("operator").post(f"{url}abort/", follow=True).text


def test_run_shows_its_result_and_its_caveats() -> None:
    run = made(ready())
    html = browser("viewer").get(run.get_absolute_url()).content.decode()
    for part in ("TTFT", "HTTP 503", "full", "demo-worker-1 does not answer", "<svg"):
        assert part in html
    assert "hx-get" not in html.split('id="benchmark-run"')[1].split("<details")[0]


def test_run_of_another_endpoint_is_404() -> None:
    run = made(ready())
    ready("other")
    client = browser("operator")
    assert client.get(f"/benchmarks/endpoints/other/{run.pk}/").status_code == 404
    assert client.post(f"/benchmarks/endpoints/other/{run.pk}/delete/").status_code == 404
    assert Benchmark.objects.exists()


def test_exports() -> None:
    run = made(ready())
    client = browser("viewer")
    answer = client.get(f"{run.get_absolute_url()}samples.csv")
    text = b"".join(answer.streaming_content).decode()
    rows = list(csv.reader(io.StringIO(text)))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 1 + 240
    assert 'filename="benchmark-demo-' in answer.headers["Content-Disposition"]
    found = client.get(f"{run.get_absolute_url()}result.json").json()
    assert found["result"]["requests"] == 240


def test_comparison_needs_two_runs() -> None:
    endpoint = ready()
    a, b = made(endpoint, 0.3), made(endpoint, 0.1)
    client = browser("viewer")
    html = client.get(f"/benchmarks/compare/?run={b.pk}&run={a.pk}").content.decode()
    assert "B is faster" in html
    assert "<svg" in html
    assert client.get(f"/benchmarks/compare/?run={a.pk}").status_code == 302
    assert client.get("/benchmarks/compare/?run=x&run=y").status_code == 404


def test_different_workloads_get_no_verdict() -> None:
    endpoint = ready()
    a, b = made(endpoint, 0.3), made(endpoint, 0.1)
    b.job["rate"] = 9
    b.save()
    html = browser("viewer").get(f"/benchmarks/compare/?run={b.pk}&run={a.pk}").content.decode()
    assert "No verdict" in html
    assert "rate: 2.0 in A, 9 in B" in html


def test_active_run_cannot_be_deleted() -> None:
    run = made(ready())
    Benchmark.objects.update(state="running")
    client = browser("operator")
    client.post(f"{run.get_absolute_url()}delete/")
    assert Benchmark.objects.exists()
    Benchmark.objects.update(state="done")
    client.post(f"{run.get_absolute_url()}delete/")
    assert not Benchmark.objects.exists()


def test_pages_need_a_constant_number_of_queries() -> None:
    endpoint = ready()
    run = made(endpoint)
    client = browser("viewer")
    for url in ("/benchmarks/", "/benchmarks/endpoints/demo/"):
        query_counts.check(client, url, KEPT)
    for _ in range(4):
        made(endpoint)
    for url in ("/benchmarks/", "/benchmarks/endpoints/demo/"):
        query_counts.check(client, url, KEPT)
    assert client.get(run.get_absolute_url()).status_code == 200


def test_empty_list_explains_benchmarks() -> None:
    ready()
    assert "No benchmarks" in browser("viewer").get("/benchmarks/").content.decode()


# ---- REST


def test_rest_starts_lists_reads_aborts_and_deletes() -> None:
    ready()
    api = program("operator")
    url = "/api/v1/endpoints/demo/benchmarks/"
    answer = api.post(url, {"workload": "documents", "rate": 5, "title": "T"})
    assert answer.status_code == 201, answer.content
    id_ = answer.json()["id"]
    assert answer.json()["job"]["documents"] == 8
    assert api.post(url, {}).json()["code"] == "benchmark_running"
    assert [one["id"] for one in api.get(url).json()["results"]] == [id_]
    assert [one["id"] for one in api.get("/api/v1/benchmarks/").json()["results"]] == [id_]
    assert api.get(f"{url}{id_}/").json()["state"] == "queued"
    assert api.delete(f"{url}{id_}/").status_code == 409
    assert api.post(f"{url}{id_}/abort/").status_code == 202
    Benchmark.objects.update(state="aborted")
    assert api.get(f"{url}{id_}/samples/").json()["rows"] == []
    assert api.delete(f"{url}{id_}/").status_code == 204
    assert api.get(f"{url}{id_}/").status_code == 404


def test_rest_dry_run_previews_and_does_nothing() -> None:
    ready()
    answer = program("operator").post(
        "/api/v1/endpoints/demo/benchmarks/plan/", {"rate": 2, "duration_s": 10}
    )
    found = answer.json()
    assert found["ends_by"] == "duration_s"
    assert found["endpoints"][0]["workers"] == ["demo-worker-0", "demo-worker-1"]
    assert not Benchmark.objects.exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"rate": -1}, "rate"),
        ({"nonsense": 1}, "nonsense"),
        ({"workload": ["chat"]}, "workload"),
        ({"title": [5]}, "title"),
        ({"caches": "odd"}, "caches"),
        ({"second": "demo"}, "second"),
        ({"workload": "trace", "trace": "{}"}, "trace"),
        ({"duration_s": None, "rate": {"a": 1}}, "rate"),
    ],
)
def test_rest_rejects_by_field(body: dict[str, Any], field: str) -> None:
    ready()
    answer = program("operator").post("/api/v1/endpoints/demo/benchmarks/", body)
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert answer.json()["remedy"]


def test_rest_compares() -> None:
    endpoint = ready()
    a, b = made(endpoint, 0.3), made(endpoint, 0.1)
    found = program("viewer").get(f"/api/v1/benchmarks/compare/?a={a.pk}&b={b.pk}").json()
    assert found["confident"] is True
    assert found["rows"][0]["better"] is True
    missing = program("viewer").get("/api/v1/benchmarks/compare/?a=x&b=y")
    assert missing.status_code == 404


def test_member_of_another_team_gets_404(client: Client) -> None:
    mine, other = (Team.objects.create(name=name, slug=name) for name in ("mine", "other"))
    endpoint = ready("secret")
    endpoint.team = other
    endpoint.save()
    run = made(endpoint)
    stranger = User.objects.create_user("stranger", password="x", role="member")
    Membership.objects.create(team=mine, user=stranger, role="operator")
    client.force_login(stranger)
    assert "endpoints/secret" not in client.get("/benchmarks/").content.decode()
    assert client.get(run.get_absolute_url()).status_code == 404
    assert client.get(f"/benchmarks/compare/?run={run.pk}&run={run.pk}0").status_code == 404
    theirs = pretend_ready(make_endpoint("theirs"), url="http://127.0.0.1:9")
    theirs.team = mine
    theirs.save()
    answer = client.post("/benchmarks/endpoints/theirs/new/", {**FORM, "second": "secret"})
    assert answer.status_code in (400, 404)
    assert not Benchmark.objects.exclude(pk=run.pk).exists()
    assert client.post("/benchmarks/endpoints/theirs/new/", FORM).status_code == 302
