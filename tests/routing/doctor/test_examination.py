"""The doctor from the command line and over REST: findings, verdict, and who may ask."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from endpoints.models import Endpoint
from tests.routing.doctor.stubs import WORKER, router_of
from tests.support.console import browser, make_endpoint, pretend_ready, program
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker() -> Iterator[Stub]:
    with http_stub(dict(WORKER)) as stub:
        yield stub


@pytest.fixture
def router(worker: Stub) -> Iterator[Stub]:
    answers = router_of(worker.url)
    answers["/workers"][1]["workers"][0]["id"] = "demo-worker-0"
    followed = {"worker": "demo-worker-0", "state": "following", "endpoint": "tcp://127.0.0.1:1"}
    answers["/index"] = (200, {"kv": {"telling": True, "sources": [followed]}})
    with http_stub(answers) as stub:
        yield stub


@pytest.fixture
def demo_endpoint(router: Stub, worker: Stub) -> Endpoint:
    workers = {"demo-worker-0": worker.url}
    return pretend_ready(make_endpoint(), admin_url=router.url, workers=workers)


def run(*words: str) -> tuple[str, int]:
    out = io.StringIO()
    try:
        call_command("emberline", "endpoint", "doctor", *words, stdout=out)
    except SystemExit as end:
        return out.getvalue(), int(end.code or 0)
    return out.getvalue(), 0


def test_command_prints_findings_and_exits_with_the_verdict(
    demo_endpoint: Endpoint, worker: Stub, router: Stub
) -> None:
    text, code = run("demo")
    assert "warning KvReplayOff" in text
    assert "demo-worker-0: replay_endpoint is not set" in text
    assert code == 1
    worker.answers["/kv_event_sources"] = (200, {})
    router.answers["/index"] = (200, {"kv": {"telling": False}})
    text, code = run("demo", "-o", "json")
    data = json.loads(text)
    assert (data["verdict"], code) == ("error", 2)
    assert data["findings"][0]["code"] == "KvEventsOff"
    assert yaml.safe_load(run("demo", "-o", "yaml")[0])["workers"] == ["demo-worker-0"]


def test_command_exits_with_zero_for_notes_alone(demo_endpoint: Endpoint, router: Stub) -> None:
    router.answers["/config"] = (200, {"config": {"strategy": "prefixaware"}})
    shown, code = run("demo")
    assert code == 0, shown
    assert "info KvReplayOff" in shown, "what would matter to kvaware is a note"


def test_unknown_endpoint_is_an_error() -> None:
    with pytest.raises(CommandError, match="Unknown endpoint nope") as caught:
        run("nope")
    assert caught.value.returncode == 2


def test_rest_returns_findings(demo_endpoint: Endpoint) -> None:
    answer = program("viewer").get("/api/v1/endpoints/demo/doctor/")
    assert answer.status_code == 200
    data = answer.json()
    assert {"KvReplayOff", "HashSeedRandom"} <= {one["code"] for one in data["findings"]}
    assert data["verdict"] == "warning"
    assert {one["state"] for one in data["checks"]} == {"passed", "found", "skipped"}
    assert program("viewer").get("/api/v1/endpoints/nope/doctor/").status_code == 404


def test_unreachable_router_is_a_finding() -> None:
    pretend_ready(make_endpoint(), admin_url="http://127.0.0.1:9")
    data = program("viewer").get("/api/v1/endpoints/demo/doctor/").json()
    assert data["findings"][0]["code"] == "RouterSilent"
    assert data["verdict"] == "error"


def test_operation_is_in_the_openapi_document() -> None:
    schema: Any = (
        browser("viewer").get("/api/v1/schema/", headers={"Accept": "application/json"}).json()
    )
    get = schema["paths"]["/api/v1/endpoints/{name}/doctor/"]["get"]
    shape = get["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    fields = schema["components"]["schemas"][shape.rpartition("/")[2]]["properties"]
    assert {"verdict", "findings", "checks"} <= set(fields)
