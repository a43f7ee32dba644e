"""A Prometheus for the tests of a module that only ask; it scrapes five endpoints every second.

Not one for the whole run: a scrape a second costs more than a start, which has its past on disk.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pytest

from dashboards.boards import answers
from dashboards.boards.queries import metric_names as queries
from dashboards.boards.results import targets as intervals
from dashboards.prometheus.http.client import Deadlines, Prometheus, Question
from tests.support.http_stub import http_stub
from tests.support.ports import free_ports
from tests.support.prometheus import Exporter, running_prometheus, write_blocks
from tests.support.waiting import until

JOBS = ("vllm", "router", "l2")
# Those of the product assume a machine with time; tests of its deadlines name their own.
Deadlines.__init__.__defaults__ = (30.0, 60.0, 90.0, 5.0)
PAST_S, AHEAD_S = 60, 8
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
    (closed,) = free_ports(1)
    with ExitStack() as stack:
        targets = {
            exporter.endpoint: stack.enter_context(http_stub(exporter.answers())).address
            for exporter in exporters
        }
        targets["gone"] = f"127.0.0.1:{closed}"
        folder = tmp_path_factory.mktemp("prometheus")
        _write_past(exporters, targets, folder)
        url = stack.enter_context(running_prometheus(folder, config(targets)))
        client = Prometheus(url)
        # Pages look at whole steps: at up to five seconds ago.
        for metric in (queries.PROMPT, queries.DECISIONS, queries.L2_LOOKUPS):
            busy = f"{metric}{{endpoint_name=~'demo|old'}}"
            wait_for(
                client, f"count(sum by (endpoint_name) (rate({busy}[20s] offset 6s)) > 0) == 2"
            )
        wait_for(client, "count(up{endpoint_name='left'} offset 6s == 0) == 3")
        wait_for(client, "count(up{endpoint_name='idle'} offset 6s == 1) == 3")
        client.close()
        yield Scraping(url)


def _write_past(exporters: list[Exporter], targets: dict[str, str], folder: Path) -> None:
    """Write a scrape of each second until Prometheus begins its own, five seconds after its start;
    who stopped answering did so before what it takes for the present."""
    rows: dict[str, list[str]] = {}
    end = int(time.time()) + AHEAD_S
    by_name = {exporter.endpoint: exporter for exporter in exporters}
    for endpoint, job in product(targets, JOBS):
        exporter = by_name.get(endpoint)
        lives = exporter.lives if exporter else 0
        own = labels(endpoint, job) | {"instance": targets[endpoint]}
        first = end - (LOOKBACK_S if lives else PAST_S)
        for n, at in enumerate(range(first, end), 1):
            answers = exporter is not None and (not lives or n <= lives)
            rows.setdefault("up", []).append(f"up{_braced(own)} {int(answers)} {at}")
            for line in exporter.lines(job, n) if exporter and answers else ():
                name, mine, value = re.fullmatch(r"(.+?)\{(.*)\} (.+)", line).groups()  # type: ignore[union-attr]
                merged = own | dict(re.findall(r'(\w+)="([^"]*)"', mine))
                rows.setdefault(name, []).append(f"{name}{_braced(merged)} {value} {at}")
    write_blocks(rows, folder)
    for exporter in exporters:
        exporter.scrapes = dict.fromkeys(JOBS, PAST_S)


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
    """Every job of every endpoint, scraped each second; JSON is YAML."""
    groups = [
        {
            "targets": [address],
            "labels": {**labels(endpoint, job), "__metrics_path__": f"/{job}"},
        }
        for endpoint, address in targets.items()
        for job in JOBS
    ]
    jobs = [{"job_name": "all", "honor_labels": True, "static_configs": groups}]
    return json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs})
