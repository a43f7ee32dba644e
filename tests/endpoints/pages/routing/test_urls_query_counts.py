"""Query counts of pages are independent of the number of endpoints and decisions."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.accounts.credentials import make_system_user
from endpoints.router import prefix_names as routing_actions
from tests.endpoints.pages.routing.test_views import DECISION, WORKERS
from tests.support.console import browser, make_endpoint, pretend_ready, program
from tests.support.http_stub import http_stub
from tests.support.query_counts import check

pytestmark = pytest.mark.django_db
KEPT = Path(__file__).with_name("query_counts.json")
HOME = "/routing/endpoints/demo/"
PAGES = (
    "/routing/",
    HOME,
    f"{HOME}strategy/",
    f"{HOME}explain/",
    f"{HOME}prefixes/",
    f"{HOME}traces/",
    "/playground/endpoints/demo/",
)


@pytest.mark.parametrize("url", [*PAGES, "/api/v1/endpoints/demo/prefixes/"])
def test_queries_do_not_grow_with_rows(url: str) -> None:
    decisions = [{**DECISION, "id": f"d{n}", "prefix": [f"{n % 3:016x}"]} for n in range(30)]
    answers = {"/workers": (200, WORKERS), "/decisions": (200, {"decisions": decisions})}
    with http_stub(answers) as router:
        pretend_ready(make_endpoint(), admin_url=router.url, workers={"w0": "u", "w1": "u"})
        for number in range(8):
            make_endpoint(f"other-{number}")
        for number in range(3):
            routing_actions.name_prefix(
                make_system_user(), "demo", f"{number:016x}", f"name {number}"
            )
        client = program("viewer") if url.startswith("/api/") else browser("operator")
        check(client, url, KEPT)
