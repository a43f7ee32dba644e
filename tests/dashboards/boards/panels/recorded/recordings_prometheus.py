"""Prometheus that scrapes every recording as a separate endpoint or exporter.

Contains one endpoint for each version of vLLM, one with all components of a complete installation,
and one for each LMCache mode.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.dashboards.boards.panels.recorded.replay import Replay, text_of
from tests.support.http_stub import http_stub
from tests.support.prometheus import running_prometheus

NEWEST = "v0-32"
"""The endpoint with a router, a cache node, a GPU, pods and containers around its worker."""
VERSIONS = {
    NEWEST: "vllm-0.32.0",
    "v0-28": "vllm-0.28.0",
    "v0-24": "vllm-0.24.0",
    "v0-19": "vllm-0.19.1",
    "v0-16": "vllm-0.16.0",
    "v0-14": "vllm-0.14.1",
    "v0-11": "vllm-0.11.1",
}
LMCACHE = ("lmcache-inside", "lmcache-escaped", "lmcache-server")
ENDPOINTS = (*VERSIONS, *LMCACHE)


@dataclass(frozen=True)
class Target:
    """`honest`: the exporter's own labels are kept, as by a ServiceMonitor with honorLabels."""

    job: str
    endpoint: str
    text: str
    honest: bool = True

    @property
    def pod(self) -> str:
        return f"{self.endpoint}-worker-0" if self.job == "vllm" else f"{self.endpoint}-{self.job}"


def targets() -> list[Target]:
    lmcache, newest = text_of("lmcache-0.5.6"), text_of("vllm-0.32.0")
    # LMCache's metrics inside a worker are on the worker's own page, by its own names, or where
    # OpenMetrics was negotiated, by names without a colon.
    escaped = lmcache.replace("lmcache:", "lmcache_")
    gpus = text_of("dcgm")
    return [
        *(Target("vllm", name, text_of(file)) for name, file in VERSIONS.items()),
        Target("router", NEWEST, text_of("emberline-router")),
        Target("l2", NEWEST, text_of("emberline-l2")),
        Target("vllm", "lmcache-inside", newest + lmcache),
        Target("vllm", "lmcache-escaped", newest + escaped),
        Target("vllm", "lmcache-server", newest),
        Target("lmcache", "lmcache-server", text_of("lmcache-0.5.6-server")),
        Target("dcgm", NEWEST, gpus),
        Target("dcgm", "v0-28", gpus, honest=False),
        Target("kube-state-metrics", NEWEST, text_of("kube-state-metrics")),
        Target("kubelet", NEWEST, text_of("cadvisor")),
    ]


@contextmanager
def replaying(folder: Path) -> Iterator[str]:
    """The URL of the Prometheus."""
    with ExitStack() as stack:
        jobs = []
        for number, target in enumerate(targets()):
            text = target.text.replace("demo-worker-0", f"{target.endpoint}-worker-0")
            stub = stack.enter_context(http_stub({"/metrics": Replay(text).page}))
            jobs.append(_job(number, target, stub.address))
        config = {"global": {"scrape_interval": "4s"}, "scrape_configs": jobs}
        yield stack.enter_context(running_prometheus(folder, json.dumps(config)))


def _job(number: int, target: Target, address: str) -> dict[str, Any]:
    """Cluster exporters have no endpoint label; our targets get theirs from the console."""
    labels = {"job": target.job, "namespace": "default", "pod": target.pod}
    ours = {"vllm", "router", "l2", "lmcache"}
    if target.job in ours:
        labels["endpoint_name"] = target.endpoint
    relabel = [{"target_label": "endpoint", "replacement": target.endpoint}]
    return {
        "job_name": f"{number}",
        "honor_labels": target.honest,
        "static_configs": [{"targets": [address], "labels": labels}],
        "metric_relabel_configs": relabel if target.job == "router" else [],
    }
