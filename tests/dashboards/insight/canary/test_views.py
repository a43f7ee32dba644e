"""Canary page: empty, running, better and ended; start, stop and promote; figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from endpoints.models import Endpoint
from endpoints.router.canary.collection import collect_canaries
from endpoints.router.models import Canary
from tests.endpoints.router.canary.test_collection import reply
from tests.support.console import browser, make_endpoint, pretend_ready
from tests.support.http_stub import Stub, http_stub

pytestmark = pytest.mark.django_db

PAGE = "/routing/endpoints/demo/canary/"
FORM = {"strategy": "session", "share": "25", "session_key": "", "settle_s": "60", "note": ""}


@pytest.fixture
def router() -> Iterator[Stub]:
    with http_stub({}) as stub:
        yield stub


@pytest.fixture
def demo_endpoint(router: Stub) -> Endpoint:
    return pretend_ready(make_endpoint(), url=router.url, admin_url=router.url)


def start() -> Canary:
    assert browser("operator").post(PAGE, FORM).status_code == 302
    return Canary.objects.get(state="running")


def text(role: str = "operator") -> str:
    return browser(role).get(PAGE).content.decode()


def test_empty_page_offers_a_start(demo_endpoint: Endpoint) -> None:
    page = text()
    assert "No canary yet" in page
    assert '<option value="prefixaware"' not in page, "the present strategy is no candidate"
    assert browser("viewer").get(f"{PAGE}figures/").json() == {"charts": []}
    assert "Requires the operator role" in text("viewer")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("strategy", "prefixaware"),
        ("share", "lots"),
        ("share", "100"),
        ("settle_s", "-1"),
        ("session_key", "nowhere"),
        ("share", ""),
    ],
)
def test_nonsense_is_marked_at_its_field(demo_endpoint: Endpoint, field: str, value: str) -> None:
    answer = browser("operator").post(PAGE, {**FORM, field: value})
    assert answer.status_code == 400
    page = answer.content.decode()
    assert f'id="id_{field}_error"' in page
    assert not Canary.objects.exists()


def test_running_canary_and_its_result(demo_endpoint: Endpoint, router: Stub) -> None:
    canary = start()
    page = text()
    assert 'data-verdict="collecting"' in page
    assert "Too few ended sessions" in page
    assert "Start a canary" not in page
    router.answers["/canary"] = reply(canary, slower=0.5)
    collect_canaries()
    page = text()
    assert 'data-verdict="better"' in page
    assert "Lower with the candidate" in page
    assert "Promote the candidate" in page
    assert "Promote</button>" not in text("viewer")
    part = browser("viewer").get(PAGE, headers={"HX-Request": "true"}).content.decode()
    assert "<html" not in part
    assert 'data-arm="candidate"' in part


def test_figures_follow_the_history(demo_endpoint: Endpoint, router: Stub) -> None:
    canary = start()
    for facts in ({"sessions": 40}, {"sessions": 600}, {"sessions": 1000, "failing": 0.02}):
        router.answers["/canary"] = reply(canary, **facts)  # type: ignore[arg-type]
        collect_canaries()
    found: dict[str, Any] = {
        one["id"]: one for one in browser("viewer").get(f"{PAGE}figures/").json()["charts"]
    }
    arms = ["quantiles", "arm-hit_rate", "arm-errors", "arm-sessions"]
    assert list(found) == ["ttft", "hit", "errors", *arms]
    low, high, middle = found["ttft"]["figure"]["data"]
    assert len(low["y"]) == 2, "none before there are enough sessions"
    assert all(a < b < c for a, b, c in zip(low["y"], middle["y"], high["y"], strict=True))
    assert found["ttft"]["spoken"].startswith("TTFT difference (%)")
    assert [len(trace["y"]) for trace in found["arm-sessions"]["figure"]["data"]] == [3, 3]
    page = text()
    for name in found:
        assert f'id="chart-{name}"' in page


def test_stop_and_promote(demo_endpoint: Endpoint) -> None:
    client = browser("operator")
    assert client.post(f"{PAGE}stop/", follow=True).content.decode().count("No canary is running")
    start()
    assert browser("viewer").post(f"{PAGE}stop/").status_code == 403
    assert "The canary was stopped." in client.post(f"{PAGE}stop/", follow=True).content.decode()
    start()
    page = client.post(f"{PAGE}promote/", follow=True).content.decode()
    assert "was promoted as revision 2" in page
    assert "Earlier canaries" in page
    demo_endpoint.refresh_from_db()
    assert demo_endpoint.parsed.routing.strategy == "session"


def test_unknown_endpoint_is_not_found() -> None:
    for path in (PAGE, f"{PAGE}figures/"):
        assert browser("operator").get(path).status_code == 404
    for path in (f"{PAGE}stop/", f"{PAGE}promote/"):
        assert browser("operator").post(path).status_code == 404
