"""Canary by REST: start, stop, promotion, rights, input, audit, router settings."""

from __future__ import annotations

from typing import Any

import pytest

from console.audit.models import AuditEvent
from endpoints.models import Endpoint, Revision
from endpoints.router.canary.selectors import router_settings
from endpoints.router.compiler import compile_config
from endpoints.router.models import Canary
from endpoints.selectors import facts as endpoint_facts
from tests.support.console import make_endpoint, program

pytestmark = pytest.mark.django_db

HOME = "/api/v1/endpoints/demo/canary/"
WANTED = {"strategy": "session", "share": 0.2}


@pytest.fixture
def demo_endpoint() -> Endpoint:
    return make_endpoint()


def test_start_and_stop(demo_endpoint: Endpoint) -> None:
    client = program("operator")
    assert client.get(HOME).json() == {"canary": None}
    made = client.post(HOME, {**WANTED, "note": "try it"})
    assert made.status_code == 201
    shown = made.json()
    assert (shown["state"], shown["control"], shown["verdict"]) == (
        "running", "prefixaware", "collecting",
    )  # fmt: skip
    assert shown["arms"]["candidate"]["strategy"] == "session"
    assert shown["arms"]["candidate"]["ttft_p50_s"] is None
    assert client.get(HOME).json()["canary"]["id"] == shown["id"]
    again = client.post(HOME, WANTED)
    assert (again.status_code, again.json()["code"]) == (409, "canary_running")
    assert client.delete(HOME).json()["state"] == "stopped"
    gone = client.delete(HOME)
    assert (gone.status_code, gone.json()["code"]) == (409, "no_canary")
    events = AuditEvent.objects.filter(target="endpoint/demo").values_list("verb", "note")
    assert {("canary.start", "try it"), ("canary.stop", "")} <= set(events)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"strategy": "prefixaware"}, "strategy"),
        ({"strategy": "fast"}, "strategy"),
        ({"strategy": None}, "strategy"),
        ({"share": 0}, "share"),
        ({"share": "much"}, "share"),
        ({"session_key": "cookies"}, "session_key"),
        ({"settle_s": -1}, "settle_s"),
        ({"salt": 1}, "salt"),
    ],
)
def test_invalid_settings_name_field_and_remedy(
    demo_endpoint: Endpoint, change: dict[str, Any], field: str
) -> None:
    refused = program("operator").post(HOME, {**WANTED, **change})
    assert refused.status_code == 400
    assert refused.json()["field"] == field
    assert refused.json()["remedy"]
    assert not Canary.objects.exists()


def test_routers_get_the_canary_while_it_runs(demo_endpoint: Endpoint) -> None:
    facts = endpoint_facts(demo_endpoint)
    assert router_settings(facts) is None
    shown = program("operator").post(HOME, WANTED).json()
    settings = router_settings(facts)
    assert settings is not None
    config = compile_config(facts, (), settings)
    assert config["canary"]["id"] == shown["id"]
    assert (config["canary"]["strategy"], config["canary"]["share"]) == ("session", 0.2)
    program("operator").delete(HOME)
    assert router_settings(facts) is None


def test_routers_drop_a_canary_of_another_strategy(demo_endpoint: Endpoint) -> None:
    """A file with equal strategies in both arms would be rejected by the routers."""
    program("operator").post(HOME, WANTED)
    path = HOME.removesuffix("canary/")
    assert program("operator").patch(path, {"routing": {"strategy": "session"}}).status_code == 200
    demo_endpoint.refresh_from_db()
    assert router_settings(endpoint_facts(demo_endpoint)) is None


def test_promotion_is_a_revision(demo_endpoint: Endpoint) -> None:
    client = program("operator")
    assert client.post(f"{HOME}promote/", {}).status_code == 409
    client.post(HOME, {**WANTED, "session_key": "header:x-chat"})
    done = client.post(f"{HOME}promote/", {}).json()
    demo_endpoint.refresh_from_db()
    routing = demo_endpoint.parsed.routing
    assert (routing.strategy, routing.session_key) == ("session", "header:x-chat")
    revision = Revision.objects.get(endpoint=demo_endpoint, number=done["revision"])
    assert (done["state"], revision.verb, revision.number) == (
        "promoted", "canary.promote", demo_endpoint.generation,
    )  # fmt: skip
    assert AuditEvent.objects.filter(verb="canary.promote").count() == 2  # revision and canary


def test_rights(demo_endpoint: Endpoint) -> None:
    viewer = program("viewer")
    assert viewer.get(HOME).status_code == 200
    assert viewer.post(HOME, WANTED).status_code == 403
    program("operator").post(HOME, WANTED)
    assert viewer.delete(HOME).status_code == 403
    assert viewer.post(f"{HOME}promote/", {}).status_code == 403
    assert program("operator").get("/api/v1/endpoints/other/canary/").status_code == 404
    assert program("operator").post("/api/v1/endpoints/other/canary/", WANTED).status_code == 404
