"""Latency of every board and range over a month of a fleet's metrics.

    python -m bench.dashboards [--endpoints 4] [--workers 2] [--days 30] [--limit-ms 1000]
    python -m bench.dashboards --every-sample --short --endpoints 50 --workers 4 --days 7 \\
        --ranges 15m,6h,7d --queries 5

Creates the month with bench/month.py (some hundred megabytes, minutes; `--data FOLDER` keeps and
reuses it; `--every-sample`: a scrape every five seconds, by bench/blocks.py: on the last day of all
metrics, before of gauges and recording rules only), starts a real Prometheus on it, and requests
each board's data through Django in this process. `first` is the first response; `cold` are
responses for other times, without anything remembered of the fleet or of Prometheus; `warm` is the
last one again, from the cache. Per cold response: CPU time of the console and of Prometheus, which
does not depend on other load, Prometheus' own evaluation time (all queries, one after the other),
number of queries and of rounds (queries that wait for the answers of others).
`--queries N` lists the N slowest queries of each board by Prometheus' own time, and the samples
that all of its queries read. `--patient` waits minutes for each query instead of seconds, so that
CPU time is complete on a busy machine. Where recording
rules serve a long range, the same queries run on raw samples too, with the slowdown; `--short`
skips that. Exits with 1 if a board's p95 of `cold` exceeds the limit.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import requests

from bench import console_speed
from bench.console_speed import at

ALL = "all endpoints"
_FLEET_STEP_S = 60  # of large fleets: other times within a step are the same view


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--endpoints", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2, help="of each endpoint")
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--limit-ms", type=float, default=1000.0)
    parser.add_argument(
        "--ranges", default="", help="of the boards, by comma; all if none is named"
    )
    parser.add_argument("--every-sample", action="store_true", help="not one a minute")
    parser.add_argument("--short", action="store_true", help="not also of every sample")
    parser.add_argument("--boards", default="", help="by comma, as overview-all or cache-one")
    parser.add_argument("--queries", type=int, default=0, help="of each board, the slowest")
    parser.add_argument("--patient", action="store_true", help="wait for minutes: CPU at high load")
    parser.add_argument("--data", type=Path, help="a folder which keeps the month")
    options = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    with tempfile.TemporaryDirectory(prefix="emberline-month-") as place, console_speed.console():
        return _measured(options, options.data or Path(place))


def _measured(options: argparse.Namespace, folder: Path) -> int:
    from dashboards.boards import queries
    from tests.support.prometheus import running_prometheus

    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "data").is_dir():
        began = time.monotonic()
        series, size = _made(options, folder)
        print(
            f"{series} series, {size / 2**20:.0f} MiB, made in {time.monotonic() - began:.0f} s",
            flush=True,
        )
    client = console_speed.seed(options.endpoints, options.workers)
    print(f"{options.endpoints} endpoints, {options.workers} workers each, {options.days} days")
    print(
        f"{'board':22} {'range':>5} {'first':>6} {'p50':>6} {'p95':>6} {'warm':>5} "
        f"{'CPU':>5} {'theirs':>6} {'eval':>6} {'asked':>5} {'rounds':>6} faults"
    )
    if options.patient:
        from dashboards.prometheus.http import client as prometheus_client

        waits = prometheus_client.Deadlines(connect_s=60, read_s=300, page_s=600)
        patch.object(prometheus_client, "Deadlines", lambda: waits).start()
    slow = []
    # Neither delete old blocks (the month exceeds the default retention of two weeks) nor compact.
    keep = ("--storage.tsdb.retention.time=60d", "--storage.tsdb.max-block-duration=2h")
    with running_prometheus(folder, "", *keep) as url:
        _use(url)
        work = PrometheusWork(url)
        for label, path, span in _views(options.ranges, options.boards):
            one = _request_page(client, path, span, _newest(folder), options.times, work)
            print(f"{label:28} {one}", flush=True)
            for line in work.list_slowest(options.queries):
                print(f"    {line}", flush=True)
            if at(one.cold, 0.95) > options.limit_ms or one.faults:
                slow.append(" ".join(label.split()))
            if not options.short and any(
                span.step_s % family.every_s == 0 for family in queries.growth.FAMILIES
            ):
                # Same values from raw samples, without recording rules.
                with patch.object(queries.growth, "FAMILIES", ()):
                    # Other times: the ones above are cached by the console.
                    other = _newest(folder) - options.times * span.step_s
                    raw = _request_page(client, path, span, other, options.times, work)
                ratio = at(raw.cold, 0.5) / at(one.cold, 0.5)
                print(f"{'  of every sample':28} {raw}  {ratio:.1f} x", flush=True)
    print("above the limit, or not answered: " + ("; ".join(slow) or "none"))
    return 1 if slow else 0


def _made(options: argparse.Namespace, folder: Path) -> tuple[int, int]:
    """Return the number of series and bytes."""
    from bench import blocks, month
    from dashboards.boards.queries import SCRAPE_S

    if not options.every_sample:
        return month.write(month.Fleet(options.endpoints, options.workers, options.days), folder)
    from dashboards.prometheus.config.recording_rules import list_counters

    counters = set(list_counters())
    month.write(month.Fleet(1, options.workers, days=1, step_s=SCRAPE_S), folder)
    return blocks.copy(
        folder / "data", options.endpoints, options.days, lambda name: name not in counters
    )


def _views(ranges: str, boards: str) -> Iterator[tuple[str, str, Any]]:
    """Yield name, path and range."""
    return (
        (f"{name:22} {span.key:>5}", path, span)
        for name, path, span in _all_views(ranges)
        if not boards or name.replace(", ", "-").replace(ALL, "all") in boards.split(",")
    )


def _all_views(ranges: str) -> Iterator[tuple[str, str, Any]]:
    from dashboards.boards.panels import BOARDS, RANGES

    wanted = ranges.split(",") if ranges else list(RANGES)
    for span in (RANGES[key] for key in wanted):
        for key, board in BOARDS.items():
            if board.fleet:
                yield f"{key}, {ALL}", f"/dashboards/{key}/data", span
            if board.one:
                path = f"/dashboards/endpoints/llm-0/{key}/data"
                yield f"{key}, one", path, span


def _newest(folder: Path) -> int:
    """Return the newest sample (epoch seconds): data made earlier ends before now."""
    metas = (json.loads(meta.read_text()) for meta in folder.glob("data/*/meta.json"))
    return int(max(meta["maxTime"] for meta in metas) // 1000)


class PrometheusWork:
    """Queries sent by the console, and what the server reports about them."""

    def __init__(self, url: str) -> None:
        from dashboards.prometheus.http.client import Prometheus

        self._url = url
        self.rounds: list[list[str]] = []
        self._askers: set[Any] = set()
        begin, answer = Prometheus.begin, Prometheus._answer
        self._end: Any = None

        def begun(asker: Any, questions: Any) -> Any:
            self.rounds.append([])
            self._askers.add(asker)
            return begin(asker, questions)

        def answered(asker: Any, question: Any) -> Any:
            self.rounds[-1].append(question)
            return answer(asker, question)

        for name, counting in (("begin", begun), ("_answer", answered)):
            patch.object(Prometheus, name, counting).start()

    def forget(self) -> None:
        """Drop remembered answers, which boards of the same time share."""
        for asker in self._askers:
            asker._results.clear()
        self.rounds.clear()

    def read(self) -> float:
        """Return the seconds of evaluation since the start of Prometheus."""
        text = requests.get(f"{self._url}/metrics", timeout=30).text
        seconds = 'prometheus_engine_query_duration_seconds_sum{slice="inner_eval"}'
        found = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return float(found[seconds])

    def list_slowest(self, count: int) -> list[str]:
        """Repeat the queries of the last board, one at a time."""
        lines, read = [], 0
        for question in self.rounds and {q for each in self.rounds for q in each} if count else ():
            window, params = question.window, {"query": question.query, "stats": "all"}
            if window is None:
                params |= {"time": question.at}
            else:
                params |= {"start": window.start, "end": window.end, "step": window.step}
            way = "query" if window is None else "query_range"
            answer = requests.post(f"{self._url}/api/v1/{way}", data=params, timeout=600).json()
            if "data" not in answer:
                continue
            stats, series = answer["data"]["stats"], len(answer["data"]["result"])
            times, samples = stats["timings"], stats["samples"]["totalQueryableSamples"]
            read += samples
            took = 1000 * times["evalTotalTime"]
            lines.append((took, f"{took:6.0f} ms {samples:10} {series:5} {question.query[:230]}"))
        slowest = [line for _, line in sorted(lines, reverse=True)[:count]]
        return [f"{read / 1e6:.2f} million samples read", *slowest] if count else []


@dataclasses.dataclass(frozen=True)
class BoardLatency:
    """Latencies in milliseconds."""

    first: float
    cold: list[float]
    warm: float
    cpu: float
    theirs: float
    evaluated: float
    queries: float
    rounds: float
    faults: str

    def __str__(self) -> str:
        return (
            f"{self.first:6.0f} {at(self.cold, 0.5):6.0f} {at(self.cold, 0.95):6.0f} "
            f"{self.warm:5.0f} {self.cpu:5.0f} {self.theirs:6.0f} {self.evaluated:6.0f} "
            f"{self.queries:5.0f} {self.rounds:6.1f} {self.faults}"
        )


def _request_page(
    client: Any, path: str, span: Any, newest: int, times: int, work: PrometheusWork
) -> BoardLatency:
    """Request the range ending now, and ending some steps earlier."""
    from dashboards.boards.results import targets

    found = []
    faults: set[str] = set()
    cpu = theirs = evaluated = 0.0
    questions: list[list[list[Any]]] = []
    for turn in range(times):
        targets.clear_memory()
        to = newest - turn * max(span.step_s, _FLEET_STEP_S)
        url = f"{path}?from={to - span.length_s}&to={to}"
        work.forget()
        before = work.read()
        spent, spent_theirs = time.process_time(), _theirs()
        began = time.perf_counter()
        data = client.get(url).json()
        found.append(1000 * (time.perf_counter() - began))
        cpu += time.process_time() - spent
        theirs += _theirs() - spent_theirs
        evaluated += work.read() - before
        questions.append([one for one in work.rounds if one])
        faults |= {p["state"] for p in data["panels"]} & {"too_slow", "bad_query", "prometheus"}
    began = time.perf_counter()
    client.get(url)
    warm = 1000 * (time.perf_counter() - began)
    each = 1000 / times
    return BoardLatency(
        found[0],
        sorted(found[1:] or found),
        warm,
        cpu * each,
        theirs * each,
        evaluated * each,
        sum(len(one) for rounds in questions for one in rounds) / times,
        sum(map(len, questions)) / times,
        " ".join(sorted(faults)),
    )


def _theirs() -> float:
    """Return the CPU seconds of the Prometheus started here."""
    (child,) = (p for p in psutil.Process().children() if p.name() == "prometheus")
    spent = child.cpu_times()
    return float(spent.user + spent.system)


def _use(url: str) -> None:
    from django.conf import settings

    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=url)


if __name__ == "__main__":
    raise SystemExit(main())
