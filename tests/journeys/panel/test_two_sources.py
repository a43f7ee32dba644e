"""Two clusters, each with a real Prometheus: one board of both, also when one of them is down."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.clusters import actions as clusters
from dashboards.boards import answers
from dashboards.boards.queries.metric_names import REQUESTS
from dashboards.prometheus.http.client import Prometheus
from dashboards.prometheus.sources import actions
from tests.support.console import browser, make_endpoint, person
from tests.support.dashboards.fixtures import config, wait_for
from tests.support.http_stub import http_stub
from tests.support.prometheus import Exporter, running_prometheus
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
FLEET = "/dashboards/data?range=15m"


@pytest.fixture
def two_sources(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """`here` is scraped by the source of the rest, `there` by that of cluster eu. Called, it ends
    the latter's Prometheus."""
    clusters.add_cluster(person("admin"), "eu", {"kind": "in-cluster"})
    make_endpoint("here")
    make_endpoint("there", placement={"cluster": "eu"})
    clients = []
    with ExitStack() as stack, ExitStack() as dies:
        for name, cluster, life in (("here", None, stack), ("there", "eu", dies)):
            address = stack.enter_context(http_stub(Exporter(name).answers())).address
            folder = tmp_path / name
            folder.mkdir()
            url = life.enter_context(running_prometheus(folder, config({name: address})))
            more = {"cluster": cluster} if cluster else {}
            actions.add(person("admin"), f"of-{name}", {"url": url, **more})
            clients.append(Prometheus(url))
        for client in clients:
            wait_for(client, f"sum(rate({REQUESTS}[20s] offset 6s)) > 0")
            client.close()
        yield dies.close


def board(viewer: Client, url: str = FLEET) -> dict[str, Any]:
    answers.CACHE.clear()
    data: dict[str, Any] = viewer.get(url).json()
    return data | {"panels": {panel["id"]: panel for panel in data["panels"]}}


def lines(data: dict[str, Any]) -> set[str]:
    return {row[0] for row in data["panels"]["requests"]["table"]["rows"]}


def test_values_of_the_other_source_stay_when_one_is_down(two_sources: Callable[[], None]) -> None:
    viewer = browser("viewer")

    def complete() -> bool:
        """On a busy machine, a scrape may time out."""
        both = board(viewer)
        assert both["fault"] is None
        return lines(both) == {"here", "there"} and both["scraped"].startswith("workers 2 of 2")

    until(complete, what="both clusters on one board")
    two_sources()
    left = until(lambda: _faulty(board(viewer)), what="the board to miss a source")
    assert left["fault"]["title"] == "Some metrics sources are unreachable"
    assert "of-there" in left["fault"]["text"]
    assert "of-here" not in left["fault"]["text"]
    assert left["panels"]["requests"]["state"] == "ok"
    assert "here" in lines(left)
    assert board(viewer, "/dashboards/endpoints/here/data")["fault"] is None
    gone = board(viewer, "/dashboards/endpoints/there/data")
    assert {panel["state"] for panel in gone["panels"].values()} == {"prometheus"}


def _faulty(data: dict[str, Any]) -> dict[str, Any] | None:
    """Answers of before its end are good for some seconds."""
    return data if data["fault"] and "there" not in lines(data) else None
