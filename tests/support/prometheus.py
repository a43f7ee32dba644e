"""Prometheus on a free port, and exporters for it to scrape."""

from __future__ import annotations

import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import URLError

from console.launcher.layout import ROOT, Layout
from console.launcher.tools import prometheus_server
from tests.support.ports import free_ports
from tests.support.waiting import until

# `make test` unpacks it under var/, outside PATH.
PROMETHEUS = str(prometheus_server(Layout(ROOT / "var")) or "/usr/bin/prometheus")
CACHED = "vllm:prompt_tokens_cached_by_source_total"
HISTOGRAMS = (
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
)
LENGTHS = "request_prompt_tokens"
PROMTOOL = str(Path(PROMETHEUS).with_name("promtool"))


@contextmanager
def running_prometheus(folder: Path, config: str, *more: str) -> Iterator[str]:
    """Yield its URL once it responds. `more`: additional arguments."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    file = folder / "prometheus.yml"
    file.write_text(config)
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={file}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                *more,
            ],
            env=os.environ | {"GOGC": "400"},  # few samples: by default it would collect all day
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: _ready(url, process), what="Prometheus")
        yield url
    finally:
        process.kill()
        process.wait(60)


def write_blocks(rows: Mapping[str, list[str]], folder: Path) -> None:
    """Write samples (lines of OpenMetrics with times in seconds, by metric) as blocks that
    `running_prometheus` in the folder reads."""
    file = folder / "samples.om"
    with file.open("w") as out:
        for name, lines in rows.items():
            out.write(f"# TYPE {name} unknown\n" + "\n".join(lines) + "\n")
        out.write("# EOF\n")
    command = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", str(file)]
    subprocess.run([*command, str(folder / "data")], check=True, capture_output=True)


def _ready(url: str, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "Prometheus ended at once"
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False


class Exporter:
    """Metrics of a worker, a router and a cache node. While `busy`, counters grow at every scrape;
    `lives` limits the number of scrapes.
    """

    def __init__(
        self, endpoint: str = "demo", *, busy: bool = True, without: str = "", lives: int = 0
    ) -> None:
        self.endpoint = endpoint
        self.busy = busy
        self.without = without  # metric missing in this version
        self.lives = lives
        self.scrapes = dict.fromkeys(("vllm", "router", "l2"), 0)
        self._lock = threading.Lock()

    def answers(self) -> dict[str, Any]:
        """Return responses for `http_stub`, one path for each job."""
        return {f"/{job}": partial(self.metrics, job) for job in self.scrapes}

    def metrics(self, job: str, _path: str, _body: bytes) -> tuple[int, str]:
        with self._lock:
            self.scrapes[job] += 1
            n = self.scrapes[job]
        if self.lives and n > self.lives:
            return 500, "gone"
        return 200, "\n".join(self.lines(job, n)) + "\n"

    def lines(self, job: str, n: int) -> list[str]:
        """Return the metrics of the `n`-th scrape."""
        parts = {"vllm": self._worker, "router": self._router, "l2": self._node}
        lines = parts[job](n if self.busy else 0)
        return [line for line in lines if not self.without or self.without not in line]

    def _worker(self, n: int) -> list[str]:
        base = 'model_name="m",engine="0"'
        cached = {"device": 40, "host": 30, "disk": 15, "p2p": 5, "external_unspecified": 0}
        sources = {"local_compute": 10, "local_cache_hit": 40, "external_kv_transfer": 50}
        busy = min(n, 1)
        return [
            f"vllm:prompt_tokens_total{{{base}}} {100 * n}",
            f"vllm:prompt_tokens_cached_total{{{base}}} {90 * n}",
            f"vllm:generation_tokens_total{{{base}}} {20 * n}",
            f"vllm:num_requests_running{{{base}}} {2 * busy}",
            f"vllm:num_requests_waiting{{{base}}} {busy}",
            f'vllm:request_success_total{{{base},finished_reason="stop"}} {4 * n}',
            f'vllm:request_success_total{{{base},finished_reason="abort"}} 0',
            *(
                f'{CACHED}{{{base},source="{source}"}} {tokens * n}'
                for source, tokens in cached.items()
            ),
            *(
                f'vllm:prompt_tokens_by_source_total{{{base},source="{source}"}} {tokens * n}'
                for source, tokens in sources.items()
            ),
            *(line for name in HISTOGRAMS for line in self._histogram(f"vllm:{name}", base, n)),
            *self._lengths(f"vllm:{LENGTHS}", base, n),
        ]

    def _histogram(self, name: str, base: str, n: int) -> list[str]:
        """Add four observations a scrape: two up to 0.1, one up to 0.25, one up to 1."""
        buckets = {"0.1": 2, "0.25": 3, "1.0": 4, "+Inf": 4}
        return [
            *(f'{name}_bucket{{{base},le="{le}"}} {m * n}' for le, m in buckets.items()),
            f"{name}_count{{{base}}} {4 * n}",
            f"{name}_sum{{{base}}} {n}",
        ]

    def _lengths(self, name: str, base: str, n: int) -> list[str]:
        """Add one prompt of up to 10 tokens and three of up to 100."""
        buckets = {"1.0": 0, "10.0": 1, "100.0": 4, "1000.0": 4, "+Inf": 4}
        return [
            *(f'{name}_bucket{{{base},le="{le}"}} {m * n}' for le, m in buckets.items()),
            f"{name}_count{{{base}}} {4 * n}",
            f"{name}_sum{{{base}}} {200 * n}",
        ]

    def _router(self, n: int) -> list[str]:
        base = f'namespace="default",endpoint="{self.endpoint}"'
        ttft = "emberline_router_time_to_first_token_seconds"
        decided = "emberline_router_routing_decisions_total"
        picks = {("prefix_hit", 0): 3 * n, ("fallback_no_match", 1): n, ("retry", 0): 0}
        prompt = "emberline_router_{}_prompt_tokens_total"
        buckets = {  # as of the worker: two up to 0.1, one up to 0.25, one up to 1
            "full": {"0.1": 2, "0.25": 3, "1.0": 3, "+Inf": 3},
            "none": {"0.1": 0, "0.25": 0, "1.0": 1, "+Inf": 1},
            "partial": {"0.1": 0, "0.25": 0, "1.0": 0, "+Inf": 0},
        }
        return [
            f'emberline_router_requests_total{{{base},model="m",code="200"}} {4 * n}',
            f'emberline_router_requests_total{{{base},model="m",code="503"}} 0',
            f"emberline_router_queue_depth{{{base}}} {min(n, 1)}",
            f"emberline_router_queue_limit{{{base}}} {8 * min(n, 1)}",
            *(
                f'{decided}{{{base},strategy="prefixaware",reason="{reason}",'
                f'worker="{self.endpoint}-worker-{worker}"}} {count}'
                for (reason, worker), count in picks.items()
            ),
            f'{prompt.format("cached")}{{{base},model="m"}} {90 * n}',
            f'{prompt.format("computed")}{{{base},cause="first_seen"}} {10 * n}',
            f'emberline_router_completion_tokens_total{{{base},model="m"}} {20 * n}',
            # The console's own, which no figure of callers may contain.
            f'{prompt.format("computed")}{{{base},cause="first_seen",traffic="console"}} {900 * n}',
            f'{ttft}_bucket{{{base},model="m",cache="none",traffic="console",le="+Inf"}} {99 * n}',
            f'{ttft}_count{{{base},model="m",cache="none",traffic="console"}} {99 * n}',
            *(
                f'{ttft}_bucket{{{base},model="m",cache="{cache}",le="{le}"}} {n * m}'
                for cache, edges in buckets.items()
                for le, m in edges.items()
            ),
            *(
                f'{ttft}_count{{{base},model="m",cache="{cache}"}} {n * edges["+Inf"]}'
                for cache, edges in buckets.items()
            ),
        ]

    def _node(self, n: int) -> list[str]:
        return [
            f'emberline_l2_lookup_blocks_total{{pool="default",namespace="x"}} {4 * n}',
            f'emberline_l2_hit_blocks_total{{pool="default",namespace="x"}} {3 * n}',
            f'emberline_l2_used_bytes{{pool="default",medium="memory"}} {256 * min(n, 1)}',
            'emberline_l2_capacity_bytes{pool="default",medium="memory"} 1024',
        ]
