"""A Prometheus for the tests of a module that only query; it holds the scrapes of five endpoints.

The samples of the last minutes and of the next half hour are on disk before it starts: a busy
machine neither delays nor loses a scrape.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from dashboards.boards import answers
from dashboards.boards.queries import SCRAPE_S
from dashboards.boards.results import targets as intervals
from dashboards.prometheus.http.client import Deadlines, Prometheus, Question
from tests.support.prometheus import Exporter, running_prometheus, write_blocks
from tests.support.waiting import until

JOBS = ("vllm", "router", "l2")
# Those of the product assume a machine with time; tests of its deadlines name their own.
Deadlines.__init__.__defaults__ = (30.0, 60.0, 90.0, 5.0, 60.0)
PAST_S, AHEAD_S = 60, 1800
LOOKBACK_S = 400  # a sample counts for five minutes where no marker of its end is on disk


@dataclass(frozen=True)
class Scraping:
    """Endpoint demo is busy, idle gets no request, old runs an older vLLM, left stopped answering
    after a few scrapes, gone was never reached."""

    url: str


def wait_for(prometheus: Prometheus, query: str) -> float:
    """The query's first true value; another moment each time, or the cache would answer."""

    def asked() -> float:
        found = prometheus.ask({"q": Question(query, int(time.time()))})["q"].series
        return (found[0].latest or 0.0) if found else 0.0

    return until(asked, what=query)


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    """What one test has seen is not shown to the next."""
    answers.CACHE.clear()
    intervals.clear_memory()


@pytest.fixture(scope="module")
def scraping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraping]:
    exporters = [
        Exporter("demo"),
        Exporter("idle", busy=False),
        Exporter("old", without="cached_by_source"),
        Exporter("left", lives=4),
    ]
    folder = tmp_path_factory.mktemp("prometheus")
    _write_scrapes({exporter.endpoint: exporter for exporter in exporters}, folder)
    with running_prometheus(folder, "{}") as url:
        yield Scraping(url)


def _write_scrapes(exporters: dict[str, Exporter], folder: Path) -> None:
    """Write past and future scrapes; an endpoint that stopped responding did so before what
    Prometheus takes for the present."""
    rows: dict[str, list[str]] = {}
    now = int(time.time()) // SCRAPE_S * SCRAPE_S + SCRAPE_S // 2
    for (number, endpoint), job in product(enumerate([*exporters, "gone"]), JOBS):
        exporter = exporters.get(endpoint)
        lives = exporter.lives if exporter else 0
        own = labels(endpoint, job) | {"instance": f"127.0.0.1:{9000 + number}"}
        first = now - (LOOKBACK_S if lives else PAST_S)
        merged: dict[str, tuple[str, str]] = {}  # a series with its target's labels, by its own
        for n, at in enumerate(range(first, now + AHEAD_S, SCRAPE_S), 1):
            responds = exporter is not None and (not lives or n <= lives)
            rows.setdefault("up", []).append(f"up{_braced(own)} {int(responds)} {at}")
            for line in exporter.lines(job, n) if exporter and responds else ():
                series, _, value = line.rpartition(" ")
                if series not in merged:
                    name, _, mine = series.rstrip("}").partition("{")
                    both = own | dict(re.findall(r'(\w+)="([^"]*)"', mine))
                    merged[series] = name, _braced(both)
                name, braced = merged[series]
                rows.setdefault(name, []).append(f"{name}{braced} {value} {at}")
    write_blocks(rows, folder)


def _braced(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def labels(endpoint: str, job: str) -> dict[str, str]:
    return {
        "job": job,
        "namespace": "default",
        "endpoint_name": endpoint,
        "pod": f"{endpoint}-{job}-0",
    }


def config(targets: dict[str, str]) -> str:
    """Every job of every endpoint, scraped each two seconds; JSON is YAML."""
    groups = [
        {"targets": [address], "labels": {**labels(endpoint, job), "__metrics_path__": f"/{job}"}}
        for endpoint, address in targets.items()
        for job in JOBS
    ]
    jobs = [{"job_name": "all", "honor_labels": True, "static_configs": groups}]
    return json.dumps({"global": {"scrape_interval": "2s"}, "scrape_configs": jobs})
