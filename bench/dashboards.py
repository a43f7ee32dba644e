"""Latency of every board and range over a month of a fleet's metrics.

    python -m bench.dashboards [--endpoints 4] [--workers 2] [--days 30] [--limit-ms 1000]
    python -m bench.dashboards --every-sample --endpoints 50 --workers 4 --days 1 --ranges 15m,1h

Creates the month with bench/month.py (some hundred megabytes, minutes; `--data FOLDER` keeps and
reuses it; `--every-sample`: a scrape every five seconds throughout, by bench/blocks.py), starts a
real Prometheus on it, and requests each board's data through Django in this process. `first` is the
first response; `cold` are responses for other times, which are not in the console's cache; `warm`
is the first one again, from the cache. `cpu` is the CPU time of a cold one, ours and that of
Prometheus (`theirs`), independent of other load. Where recording rules serve a long range, the same
queries run on raw samples too, with the slowdown; `--short` skips that.
Exits with 1 if a board's p95 of `cold` exceeds the limit.
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

from bench import console_speed
from bench.console_speed import at

ALL = "all endpoints"


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
        f"{'board':32} {'range':>5} {'first':>7} {'cold p50':>9} {'cold p95':>9} {'warm':>6} faults"
    )
    slow = []
    # Neither delete old blocks (the month exceeds the default retention of two weeks) nor compact.
    keep = ("--storage.tsdb.retention.time=60d", "--storage.tsdb.max-block-duration=2h")
    with running_prometheus(folder, "", *keep) as url:
        _use(url)
        for label, path, span in _views(options.ranges):
            one = _asked(client, path, span, _newest(folder), options.times)
            print(f"{label:38} {one}", flush=True)
            if at(one.cold, 0.95) > options.limit_ms or one.faults:
                slow.append(" ".join(label.split()))
            if not options.short and any(
                span.step_s % family.every_s == 0 for family in queries.growth.FAMILIES
            ):
                # Same values from raw samples, without recording rules.
                with patch.object(queries.growth, "FAMILIES", ()):
                    # Other times: the ones above are cached by the console.
                    other = _newest(folder) - options.times * span.step_s
                    raw = _asked(client, path, span, other, options.times)
                ratio = at(raw.cold, 0.5) / at(one.cold, 0.5)
                print(f"{'  of every sample':38} {raw}  {ratio:.1f} x", flush=True)
    print("above the limit, or not answered: " + ("; ".join(slow) or "none"))
    return 1 if slow else 0


def _made(options: argparse.Namespace, folder: Path) -> tuple[int, int]:
    """Return the number of series and bytes."""
    from bench import blocks, month
    from dashboards.boards.queries import SCRAPE_S

    if not options.every_sample:
        return month.write(month.Fleet(options.endpoints, options.workers, options.days), folder)
    month.write(month.Fleet(1, options.workers, days=1, step_s=SCRAPE_S), folder)
    return blocks.copy(folder / "data", options.endpoints, options.days)


def _views(ranges: str) -> Iterator[tuple[str, str, Any]]:
    """Yield name, path and range."""
    from dashboards.boards.panels import BOARDS, RANGES

    wanted = ranges.split(",") if ranges else list(RANGES)
    for span in (RANGES[key] for key in wanted):
        for key, board in BOARDS.items():
            if board.fleet:
                yield f"{key + ', ' + ALL:32} {span.key:>5}", f"/dashboards/{key}/data", span
            if board.one:
                path = f"/dashboards/endpoints/llm-0/{key}/data"
                yield f"{key + ', one':32} {span.key:>5}", path, span


def _newest(folder: Path) -> int:
    """Return the newest sample (epoch seconds): data made earlier ends before now."""
    metas = (json.loads(meta.read_text()) for meta in folder.glob("data/*/meta.json"))
    return int(max(meta["maxTime"] for meta in metas) // 1000)


@dataclasses.dataclass(frozen=True)
class BoardLatency:
    """Latencies in milliseconds."""

    first: float
    cold: list[float]
    warm: float
    cpu: float
    theirs: float
    faults: str

    def __str__(self) -> str:
        return (
            f"{self.first:7.0f} {at(self.cold, 0.5):9.0f} {at(self.cold, 0.95):9.0f} "
            f"{self.warm:6.0f} {self.cpu:6.0f} {self.theirs:6.0f} {self.faults}"
        )


def _asked(client: Any, path: str, span: Any, newest: int, times: int) -> BoardLatency:
    """Request the range ending now, and ending some steps earlier."""
    found = []
    faults: set[str] = set()
    cpu, theirs = time.process_time(), _theirs()
    for turn in range(times):
        to = newest - turn * span.step_s
        url = f"{path}?from={to - span.length_s}&to={to}"
        began = time.perf_counter()
        data = client.get(url).json()
        found.append(1000 * (time.perf_counter() - began))
        faults |= {p["state"] for p in data["panels"]} & {"too_slow", "bad_query", "prometheus"}
    cpu, theirs = time.process_time() - cpu, _theirs() - theirs
    began = time.perf_counter()
    client.get(url)
    warm = 1000 * (time.perf_counter() - began)
    each = 1000 / times
    cold = sorted(found[1:])
    return BoardLatency(found[0], cold, warm, cpu * each, theirs * each, " ".join(sorted(faults)))


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
