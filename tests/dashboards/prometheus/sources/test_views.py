"""Metrics sources: permissions, validation, secrets, routing of queries and connection checks.
Every server is a real one.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from console.audit.models import AuditEvent
from console.clusters import actions as clusters
from console.core.errors import Refused
from console.system import preflight
from dashboards.boards.queries.metric_names import RUNNING
from dashboards.prometheus.http.client import Prometheus, QueryResult, Question, Series
from dashboards.prometheus.http.federation import Federated
from dashboards.prometheus.http.session import Reply
from dashboards.prometheus.sources import actions, diagnosis, selectors
from dashboards.prometheus.sources.models import MetricsSource
from tests.support.certificates import authority
from tests.support.console import browser, make_endpoint, person, program
from tests.support.http_stub import Stub, http_stub
from tests.support.query_counts import check

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).with_name("query_counts.json")
SECRET = "s3cret-that-nobody-sees"
BUILD = {"status": "success", "data": {"version": "2.42.0"}}


def vector(*found: tuple[dict[str, str], float]) -> dict[str, Any]:
    result = [{"metric": labels, "value": [0, str(value)]} for labels, value in found]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


TOLD = {
    "count by (job) (up)": vector(({"job": "vllm"}, 2)),
    "sum by (job) (up)": vector(({"job": "vllm"}, 1)),
    diagnosis.render_families(): vector(({"__name__": "vllm:num_requests_running"}, 3)),
    f'count by (endpoint_name) ({RUNNING}{{endpoint_name!=""}})': vector(
        ({"endpoint_name": "demo"}, 3)
    ),
    f'count ({RUNNING}{{pod=""}})': vector(({}, 3)),
}


def promising(path: str, _body: bytes) -> tuple[int, Any]:
    """A Prometheus with one worker whose series lack the label pod."""
    (query,) = parse_qs(urlsplit(path).query)["query"]
    return 200, TOLD.get(query, vector())


@pytest.fixture
def server() -> Iterator[Stub]:
    answers: dict[str, Any] = {
        "/api/v1/query": promising,
        "/api/v1/status/buildinfo": (200, BUILD),
        "/api/v2/status": (200, {"versionInfo": {"version": "0.27.0"}}),
    }
    with http_stub(answers) as stub:
        yield stub


@pytest.fixture
def eu() -> str:
    clusters.add_cluster(person("admin"), "eu", {"kind": "in-cluster"})
    return "eu"


def add(name: str, url: str, **more: Any) -> MetricsSource:
    return actions.add(person("admin"), name, {"url": url, **more})


def refused(name: Any, **data: Any) -> dict[str, str]:
    with pytest.raises(Refused) as caught:
        actions.add(person("admin"), name, data)
    return {problem.field: problem.code for problem in caught.value.errors}


def test_secret_is_stored_and_never_shown(server: Stub) -> None:
    add("central", server.url, auth="bearer", secret=SECRET, tenant="a")
    admin = browser("admin")
    for url in (
        "/metrics-sources/",
        "/metrics-sources/central/",
        "/metrics-sources/central/edit/",
        "/api/v1/metrics-sources/",
        "/audit/",
    ):
        answer = admin.get(url)
        assert answer.status_code == 200, url
        assert SECRET not in answer.text, url
    row = MetricsSource.objects.get()
    assert SECRET not in json.dumps(row.sealed) + str(list(AuditEvent.objects.values()))
    actions.test(person("operator"), "central")
    assert {one.get("Authorization") for one in server.headers} == {f"Bearer {SECRET}"}
    assert {one.get("X-Scope-OrgID") for one in server.headers} == {"a"}


def test_stored_secret_is_not_sent_to_another_address(server: Stub) -> None:
    add("central", server.url, auth="bearer", secret=SECRET)
    admin = person("admin")
    for changes in ({"url": "http://10.0.0.9"}, {"alertmanager_url": "http://10.0.0.9"}):
        with pytest.raises(Refused, match="is not sent to another address"):
            actions.change(admin, "central", changes)
    actions.change(admin, "central", {"url": "http://10.0.0.9", "secret": "another"})
    actions.change(admin, "central", {"tenant": "b"})
    assert selectors.list_in_use()[0].login.secret == "another"


def test_secret_file_must_be_in_the_console_folder(tmp_path: Path, server: Stub) -> None:
    assert refused("a", url=server.url, auth="bearer", secret_file="../django_secret_key") == {
        "secret_file": "invalid"
    }
    add("central", server.url, auth="bearer", secret_file="token")
    assert "token cannot be read" in selectors.list_in_use()[0].why_not
    fault = selectors.fleet().ask({"q": Question("up", 0)})["q"].fault
    assert fault is not None
    assert "Metrics source central cannot be queried. The secret file" in fault.detail
    folder = selectors.get_folder()
    folder.mkdir(parents=True)
    (folder / "token").write_text("renewed\n")
    assert selectors.list_in_use()[0].login.secret == "renewed"
    (folder / "token").unlink()
    folder.rmdir()


def test_invalid_source_names_the_field() -> None:
    assert refused("Bad Name", url="http://x") == {"name": "invalid"}
    assert refused("console", url="http://x") == {"name": "invalid"}
    assert refused("a", url="ftp://x", auth="magic") == {"url": "invalid", "auth": "invalid_choice"}
    assert refused("a", url="http://169.254.169.254/latest") == {"url": "invalid"}
    assert refused("a", url="http://x", alertmanager_url="file:///etc") == {
        "alertmanager_url": "invalid"
    }
    assert refused("a", url="http://x", auth="basic") == {
        "username": "required",
        "secret": "required",
    }
    assert refused("a", url="http://x", auth="mtls") == {
        "certificate": "required",
        "key": "required",
    }
    assert refused("a", url="http://x", auth="sigv4", region="../x") == {"region": "invalid"}
    assert refused("a", url="http://x", cluster="nowhere") == {"cluster": "invalid"}
    assert refused("a", url="http://x", ca="no pem") == {"ca": "invalid"}
    assert refused("a", url="http://x", auth="bearer", secret="a\nHost: b") == {"secret": "invalid"}
    assert refused("a", url="http://x", tenant_header="X: y") == {"tenant_header": "invalid"}
    assert refused("a", url="http://x", nonsense="1") == {"nonsense": "unknown_field"}


def test_mismatched_pair_is_rejected(tmp_path: Path) -> None:
    certificate, key = (path.read_text() for path in authority().write(tmp_path, "console"))
    pem = {"certificate": certificate, "key": "x" + key}
    assert refused("a", url="https://x", auth="mtls", **pem) == {"certificate": "invalid"}
    made = add("a", "https://x", auth="mtls", certificate=certificate, key=key)
    assert selectors.make_source_ref(made).login.tls()


def test_one_source_per_cluster_and_one_default(eu: str) -> None:
    add("first", "http://a")
    add("of-eu", "http://b", cluster=eu)
    assert refused("second", url="http://c") == {"cluster": "taken"}
    assert refused("second", url="http://c", cluster=eu) == {"cluster": "taken"}
    add("second", "http://c", enabled=False)
    with pytest.raises(Refused, match="A source for endpoints"):
        actions.change(person("admin"), "second", {"enabled": True})


def test_endpoint_is_queried_at_the_source_of_its_cluster(eu: str) -> None:
    make_endpoint("here")
    make_endpoint("there", placement={"cluster": eu})
    with override_settings(EMBERLINE=_with_url("http://own")):
        assert (
            _url(selectors.connect_endpoint("there"))
            == _url(selectors.connect_endpoint("here"))
            == "http://own"
        )
        add("of-eu", "http://b", cluster=eu)
        assert _url(selectors.connect_endpoint("there")) == "http://b"
        assert _url(selectors.connect_endpoint("here")) == "http://own"
        fleet = selectors.fleet()
        assert isinstance(fleet, Federated)
        assert [part.name for part in fleet.parts] == ["console", "of-eu"]
        assert selectors.map_endpoints(selectors.list_in_use()) == {
            "here": "console",
            "there": "of-eu",
        }
        add("rest", "http://c")
        assert _url(selectors.connect_endpoint("here")) == "http://c"


def _with_url(url: str) -> Any:
    from dataclasses import replace

    from django.conf import settings

    return replace(settings.EMBERLINE, prometheus_url=url)


def _url(asker: Any) -> str:
    assert isinstance(asker, Prometheus)
    return asker.url


def test_alertmanagers_are_queried_with_the_login_of_their_source(server: Stub) -> None:
    assert selectors.alertmanagers() == ()
    add("central", server.url, auth="bearer", secret=SECRET, alertmanager_url=f"{server.url}/")
    (found,) = selectors.alertmanagers()
    assert (found.source, found.cluster, SECRET in repr(found)) == ("central", None, False)
    assert found.exchange("GET", "/api/v2/status").status == 200
    assert server.headers[-1]["Authorization"] == f"Bearer {SECRET}"


def test_check_lists_series_and_missing_labels(server: Stub) -> None:
    add("central", server.url, alertmanager_url=server.url)
    found = actions.test(person("operator"), "central").found
    assert (found["software"], found["alertmanager"]) == (
        "Prometheus 2.42.0",
        "Alertmanager 0.27.0",
    )
    assert found["jobs"] == [{"name": "vllm", "targets": 2, "up": 1}]
    assert found["endpoints"] == ["demo"]
    assert abs(found["skew_s"]) < 5
    (missing,) = found["findings"]
    assert missing["title"] == "Worker series without the label pod"
    assert "__meta_kubernetes_pod_name" in missing["fix"]
    text = browser("viewer").get("/metrics-sources/central/").text
    assert "Worker series without the label pod" in text


@pytest.mark.parametrize(
    ("status", "headers", "title"),
    [(401, {}, "Access denied"), (302, {"location": "https://elsewhere/"}, "Redirect")],
)
def test_check_reports_the_failure(status: int, headers: dict[str, str], title: str) -> None:
    answers: dict[str, Any] = {
        "/api/v1/query": promising,
        "/api/v1/status/buildinfo": (status, BUILD),
    }
    with http_stub(answers, headers) as stub:
        add("central", stub.url)
        found = actions.test(person("operator"), "central").found
    assert found["findings"][0]["title"] == title


def test_clock_skew_is_a_finding() -> None:
    found: dict[str, Any] = {}
    reply = Reply(200, {"date": "Sat, 01 Jan 2022 00:00:00 GMT"}, b"")
    (finding,) = diagnosis._skew(reply, 1640995200.0 + 60, found)
    assert (finding.title, found["skew_s"]) == ("Clock skew", -59.5)
    assert diagnosis._skew(reply, 1640995200.0, found) == []


def test_metric_names_without_a_colon_are_a_finding() -> None:
    reported = {**dict.fromkeys(("up", "known", "endpoints"), QueryResult())}
    reported |= {f"no {label}": QueryResult() for label in diagnosis.LABELS}
    reported["families"] = QueryResult((Series((("__name__", diagnosis.COLONLESS),), (3.0,)),))
    (finding,) = diagnosis._diagnose_contents(reported, {})
    assert "without the colon" in finding.text


def test_unreachable_or_wrong_server_is_reported(server: Stub) -> None:
    add("away", "http://127.0.0.1:9", enabled=False)
    add("odd", f"{server.url}/api/v2", enabled=False)
    found = actions.test(person("operator"), "away").found
    assert found["findings"][0]["text"] == "The server is unreachable."
    assert found["verdict"] == "danger"
    assert actions.test(person("operator"), "odd").found["verdict"] == "danger"


def test_pages_and_rest_check_the_role(server: Stub) -> None:
    admin, operator, viewer = (browser(role) for role in ("admin", "operator", "viewer"))
    typed = {"name": "central", "url": server.url, "auth": "none", "enabled": "on"}
    for who in (operator, viewer):
        assert who.post("/metrics-sources/add/", typed).status_code == 403
    assert admin.post("/metrics-sources/add/", typed).status_code == 302
    assert MetricsSource.objects.get().verified_at is not None
    assert viewer.post("/metrics-sources/central/test/").status_code == 403
    assert operator.post("/metrics-sources/central/test/").status_code == 302
    edited = admin.post("/metrics-sources/central/edit/", {**typed, "url": "nonsense"})
    assert (edited.status_code, "must begin with http" in edited.text) == (400, True)
    assert admin.post("/metrics-sources/central/remove/", {"name": "x"}).status_code == 400
    assert admin.post("/metrics-sources/central/remove/", {"name": "central"}).status_code == 302
    assert not MetricsSource.objects.exists()


def test_rest_creates_idempotently_dry_runs_and_compares(server: Stub) -> None:
    admin = program("admin")
    path = "/api/v1/metrics-sources/"
    body = {"name": "central", "url": server.url, "auth": "bearer", "secret": SECRET}

    def sent(method: str, path: str, data: Any = None, **headers: str) -> Any:
        call = getattr(admin, method)
        return call(path, json.dumps(data), content_type="application/json", headers=headers)

    would = sent("post", f"{path}?dry_run=true", body)
    assert (would.status_code, MetricsSource.objects.exists()) == (200, False)
    assert SECRET not in would.text
    first, again = (sent("post", path, body, **{"Idempotency-Key": "k"}) for _ in range(2))
    assert (first.status_code, again.status_code, MetricsSource.objects.count()) == (201, 201, 1)
    assert (first.json()["kept_secrets"], "secret" in first.json()) == (["secret"], False)
    one = f"{path}central/"
    etag = admin.get(one)["ETag"]
    assert sent("patch", one, {"tenant": "a"}, **{"If-Match": etag}).status_code == 200
    assert sent("patch", one, {"tenant": "b"}, **{"If-Match": etag}).status_code == 412
    assert admin.get(path).json()["results"][0]["tenant"] == "a"
    assert sent("post", f"{one}test/").json()["found"]["software"] == "Prometheus 2.42.0"
    assert program("viewer").post(f"{one}test/").status_code == 403
    assert admin.delete(one).status_code == 204


def test_list_needs_a_constant_number_of_queries() -> None:
    client = browser("viewer")
    for number in range(12):
        if number in (2, 11):
            check(client, "/metrics-sources/", KEPT)
        add(f"s{number}", f"http://s{number}", enabled=False)


def test_command_line_reads_secrets_from_files_only(server: Stub, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n")
    words = ("--auth", "bearer", "--secret-from", str(tmp_path / "token"))
    reported = run("metrics-source", "add", "central", "--url", server.url, *words)
    assert "emberline metrics-source test central" in reported
    assert selectors.list_in_use()[0].login.secret == SECRET
    code, text = refused_run("metrics-source", "test", "central")
    assert (code, "without the label pod" in text, "1/2 targets up in job vllm" in text) == (
        2,
        True,
        True,
    )
    run("metrics-source", "update", "central", "--disable")
    assert "(others), disabled" in run("metrics-source", "list")
    assert refused_run("metrics-source", "get", "other")[1].endswith("Known: central.")
    run("metrics-source", "remove", "central", "--yes")
    assert "No metrics sources besides the built-in one." in run("metrics-source", "list")


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("emberline", *words, stdout=out)
    return out.getvalue()


def refused_run(*words: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("emberline", *words, stdout=out)
    except CommandError as error:
        return error.returncode, str(error)
    except SystemExit as verdict:
        return int(str(verdict)), out.getvalue()
    return 0, out.getvalue()


def test_doctor_checks_each_source_and_needs_none(server: Stub, eu: str) -> None:
    server.answers["/api/v1/query"] = (200, vector(({}, 3)))
    add("central", server.url)
    add("of-eu", "http://127.0.0.1:9", cluster=eu)
    reported = {one.subject: one for one in diagnosis.ask()}
    assert str(reported["metrics source central"]).startswith("ok ")
    assert "3 scrape targets up." in reported["metrics source central"].text
    away = reported["metrics source of-eu"]
    assert (away.ok, away.needed, "is unreachable" in away.text) == (False, False, True)
    assert {one.subject for one in preflight.ask()} >= set(reported)
