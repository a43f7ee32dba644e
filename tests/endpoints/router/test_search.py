"""Routing decisions in the search, by decision or request ID."""

from __future__ import annotations

from typing import Any

import pytest

from console.accounts.models import User
from endpoints.router import search
from tests.support.console import make_endpoint, pretend_ready
from tests.support.http_stub import http_stub

pytestmark = pytest.mark.django_db
NUMBER, REQUEST = "3fa9c1d0-d1b", "3fa9c1d0-1b"
UUID = "0b61c0ee-8a4e-4c7a-9a36-0d5b1a8a2f00"


def test_decision_is_found_by_its_ids() -> None:
    ada = User.objects.create_user("ada", password="x", role="admin")
    eve = User.objects.create_user("eve", password="x", role="member")
    listed = [{"id": NUMBER, "request_id": REQUEST}, {"id": "3fa9c1d0-d1c", "request_id": UUID}]
    answers: dict[str, Any] = {
        f"/decisions/{NUMBER}": (200, listed[0]),
        "/decisions": (200, {"decisions": listed}),
    }
    with http_stub(answers) as router:
        pretend_ready(make_endpoint("demo"), admin_url=router.url)
        make_endpoint("starting")
        page = f"/routing/endpoints/demo/decisions/{NUMBER}/"
        assert [hit.url for hit in search.find(ada, NUMBER)] == [page]
        assert [hit.url for hit in search.find(ada, REQUEST)] == [page]
        assert [hit.label for hit in search.find(ada, UUID)] == ["3fa9c1d0-d1c"]
        queried = len(router.seen)
        for text in ("demo", "demo-worker-0", "3fa9c1d0-", "3FA9"):
            assert search.find(ada, text) == []
        assert search.find(eve, NUMBER) == [], "of no team"
        assert len(router.seen) == queried, "names are not sent to routers"
        assert search.find(ada, "3fa9c1d0-dff") == []
    (notice,) = search.find(ada, NUMBER)
    assert notice.label == "Not searched, router not responding: demo"


def test_routers_are_queried_within_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    ada = User.objects.create_user("ada", password="x", role="admin")
    with http_stub({f"/decisions/{NUMBER}": (200, {"id": NUMBER})}) as router:
        for name in ("a", "b", "c", "d", "e"):
            pretend_ready(make_endpoint(name), admin_url=f"{router.url}/{name}/..")
        monkeypatch.setattr(search, "BUDGET_S", -1.0)
        (notice,) = search.find(ada, NUMBER)
        assert notice.label == "Not searched, router not responding: a, b, c and 2 more"
        assert router.seen == []
