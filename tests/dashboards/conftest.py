"""One Prometheus for the tests that only ask; it scrapes a busy worker every second."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dashboards.prom import Prometheus, Question
from tests.support.http_stub import http_stub
from tests.support.prometheus import Exporter, running_prometheus
from tests.support.waiting import until


@dataclass(frozen=True)
class Scraping:
    url: str
    exporter: Exporter


def static_config(targets: list[tuple[str, str, str]]) -> str:
    """Scrapes (job, address, endpoint_name) every second."""
    jobs = [
        {
            "job_name": f"{job}-{number}",
            "static_configs": [
                {
                    "targets": [address],
                    "labels": {
                        "job": job,
                        "namespace": "default",
                        "endpoint_name": endpoint,
                        "pod": f"{endpoint}-{job}-0",
                    },
                }
            ],
        }
        for number, (job, address, endpoint) in enumerate(targets)
    ]
    return json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs})


def wait_for(prometheus: Prometheus, query: str) -> float:
    """The query's first true value."""

    def asked() -> float:
        # Another moment each time: the same question would be answered from the cache.
        at = int(time.time())
        found = prometheus.ask({"q": Question(query, at)})["q"].series
        return (found[0].latest or 0.0) if found else 0.0

    return until(asked, what=query)


@pytest.fixture(scope="session")
def scraping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraping]:
    folder: Path = tmp_path_factory.mktemp("prometheus")
    exporter = Exporter()
    with http_stub({"/metrics": exporter.metrics}) as stub:
        targets = [(job, stub.address, "demo") for job in ("vllm", "router", "l2")]
        with running_prometheus(folder, static_config(targets)) as url:
            client = Prometheus(url)
            wait_for(client, "sum(rate(vllm:prompt_tokens_total[20s]))")
            client.close()
            yield Scraping(url, exporter)
