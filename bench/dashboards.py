"""How long boards take over a month of a fleet's metrics: every board, every range.

    python -m bench.dashboards [--endpoints 4] [--workers 2] [--days 30] [--limit-ms 1000]

Makes the month (bench/month.py: some hundred megabytes, minutes of work; `--data FOLDER` keeps it
and uses it again), starts a real Prometheus over it, and asks each board's data through Django in
this process, as a browser's one request does. `first` is the first answer of a Prometheus just
started; `cold` are others which no cache of the console held; `warm` is the same one again, from
the console's cache. `cpu` is what a cold one cost, ours and that of Prometheus, in processor time,
which a busy machine does not stretch. Exits 1 when a board's p95 of `cold` is above the limit.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
    parser.add_argument("--data", type=Path, help="a folder which keeps the month")
    asked = parser.parse_args()
    sys.path.insert(0, str(Path.cwd()))
    with tempfile.TemporaryDirectory(prefix="emberline-month-") as place, console_speed.console():
        return _measured(asked, asked.data or Path(place))


def _measured(asked: argparse.Namespace, folder: Path) -> int:
    from bench import month
    from tests.support.prometheus import running_prometheus

    fleet = month.Fleet(asked.endpoints, asked.workers, asked.days)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "data").is_dir():
        began = time.monotonic()
        series, size = month.write(fleet, folder)
        print(
            f"{series} series, {size / 2**20:.0f} MiB, made in {time.monotonic() - began:.0f} s",
            flush=True,
        )
    client = console_speed.seed(asked.endpoints, asked.workers)
    print(f"{asked.endpoints} endpoints, {asked.workers} workers each, {asked.days} days")
    print(
        f"{'board':32} {'range':>5} {'first':>7} {'cold p50':>9} {'cold p95':>9} {'warm':>6} faults"
    )
    slow = []
    # It must not delete what is old: the month began before its retention of two weeks.
    with running_prometheus(folder, "", "--storage.tsdb.retention.time=60d") as url:
        for label, path in _views():
            one = _asked(client, url, path, asked.times)
            print(f"{label:38} {one}", flush=True)
            if at(one.cold, 0.95) > asked.limit_ms or one.faults:
                slow.append(" ".join(label.split()))
    print("above the limit, or not answered: " + ("; ".join(slow) or "none"))
    return 1 if slow else 0


def _views() -> Iterator[tuple[str, str]]:
    from dashboards.panels import BOARDS, RANGES

    for span in RANGES:
        for key, board in BOARDS.items():
            if board.fleet:
                yield f"{key + ', ' + ALL:32} {span:>5}", f"/dashboards/{key}/data?range={span}"
            if board.one:
                path = f"/dashboards/endpoints/llm-0/{key}/data?range={span}"
                yield f"{key + ', one':32} {span:>5}", path


@dataclasses.dataclass(frozen=True)
class Asked:
    """All in milliseconds."""

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


def _asked(client: Any, url: str, path: str, times: int) -> Asked:
    """A new client of Prometheus each time has an empty cache."""
    found = []
    faults: set[str] = set()
    cpu, theirs = time.process_time(), _theirs()
    for _ in range(times):
        _use(url)
        began = time.perf_counter()
        data = client.get(path).json()
        found.append(1000 * (time.perf_counter() - began))
        faults |= {p["state"] for p in data["panels"]} & {"too_slow", "bad_query", "prometheus"}
    cpu, theirs = time.process_time() - cpu, _theirs() - theirs
    began = time.perf_counter()
    client.get(path)
    warm = 1000 * (time.perf_counter() - began)
    each = 1000 / times
    cold = sorted(found[1:])
    return Asked(found[0], cold, warm, cpu * each, theirs * each, " ".join(sorted(faults)))


def _theirs() -> float:
    """Processor seconds of the Prometheus which this process started."""
    (child,) = (p for p in psutil.Process().children() if p.name() == "prometheus")
    spent = child.cpu_times()
    return float(spent.user + spent.system)


def _use(url: str) -> None:
    from django.conf import settings
    from django.core.cache import cache

    from dashboards import prom

    prom.connect(url).close()
    prom.connect.cache_clear()
    cache.clear()
    settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=url)


if __name__ == "__main__":
    raise SystemExit(main())
