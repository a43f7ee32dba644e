"""One Prometheus over all recordings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dashboards.boards.queries.metric_names import PROMPT
from dashboards.prometheus.http.client import Prometheus
from tests.dashboards.boards.panels.recorded.recordings_prometheus import (
    ENDPOINTS,
    replaying,
    targets,
)
from tests.support.dashboards.fixtures import wait_for


@pytest.fixture(scope="package")  # what replays computes as long as it is there
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    with replaying(tmp_path_factory.mktemp("recorded")) as url:
        client = Prometheus(url)
        # Boards query whole steps: up to five seconds ago.
        wait_for(client, f"count(up offset 6s == 1) == {len(targets())}")
        rates = f"count(sum by (endpoint_name) (rate({PROMPT}[20s] offset 6s)) > 0)"
        wait_for(client, f"{rates} == {len(ENDPOINTS)}")
        yield client
        client.close()
