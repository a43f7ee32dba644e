"""A month of a fleet's metrics as Prometheus blocks, based on recorded exporter output.

Every series has the names, labels and bounds recorded in tests/dashboards/recorded; load follows
the time of day; only metrics used by a panel are made. One sample a minute, and one every scrape in
the last hours for the short ranges. Series of recording rules are included.

promtool reads its whole input for each block, so every block has its own file.
"""

from __future__ import annotations

import math
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dashboards.boards import queries
from dashboards.boards.panels import BOARDS
from dashboards.boards.queries import cache, growth
from dashboards.boards.queries import metric_names as n
from dashboards.prometheus.config.recording_rules import list_counters, list_fleet_counters
from tests.dashboards.boards.panels.recorded.replay import text_of
from tests.support.prometheus import PROMTOOL

FILES = (
    *("vllm-0.32.0", "emberline-router", "emberline-l2"),
    *("dcgm", "kube-state-metrics", "cadvisor"),
)
BLOCK_S = 54 * 3600  # a length that Prometheus compacts to
DAY_S = 86400
_ENDPOINT = ("namespace", "endpoint_name")
_CONSTANT = ("up", "scrape_series_added")
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\{(.*)\} (\S+)")


@dataclass(frozen=True)
class Fleet:
    endpoints: int
    workers: int  # of each endpoint
    days: int = 30
    step_s: int = 60
    fine_hours: int = 6

    @property
    def names(self) -> list[str]:
        return [f"llm-{n}" for n in range(self.endpoints)]

    def pods(self, endpoint: str) -> list[str]:
        return [f"{endpoint}-worker-{n}" for n in range(self.workers)]

    def times(self, now: int) -> list[int]:
        fine = now - self.fine_hours * 3600
        coarse = range(now - self.days * DAY_S, fine, self.step_s)
        return [*coarse, *range(fine, now, queries.SCRAPE_S)]


@dataclass(frozen=True)
class Line:
    """One recorded series. `grows`: a counter or a part of a histogram."""

    labels: str
    value: float
    grows: bool


Family = dict[str, list[Line]]
"""Name of a sample -> its series."""


def queried_words() -> set[str]:
    """Return every word of every query, which includes the metric names."""
    scopes = (queries.Scope(), queries.Scope(endpoint="llm-0"))
    times = queries.Times(60, 3600)
    words: set[str] = set()
    for board in BOARDS.values():
        for panel in (*board.panels(one=True), *board.panels(one=False)):
            for line in panel.lines:
                for scope in scopes:
                    words |= set(_NAME.findall(queries.render_for_chart(line.query, scope, times)))
            words |= set(panel.metrics)
    return words


def recorded(file: str, wanted: set[str]) -> Family:
    found: Family = {}
    types: dict[str, str] = {}
    for text in text_of(file).splitlines():
        if text.startswith("# TYPE "):
            _, _, name, kind = text.split()
            types[name] = kind
        elif (sample := _SAMPLE.fullmatch(text)) and sample[1] in wanted:
            bare = re.sub(r"_(bucket|count|sum|total)$", "", sample[1])
            grows = (types.get(sample[1]) or types.get(bare)) in ("counter", "histogram")
            found.setdefault(sample[1], []).append(Line(sample[2], float(sample[3]), grows))
    return found


def series(fleet: Fleet) -> dict[str, list[tuple[str, Line, float]]]:
    """Return the series by metric: labels as stored, the recorded line, and its factor here."""
    wanted = queried_words() | {"up"}
    files = {file: recorded(file, wanted) for file in FILES}
    made: dict[str, list[tuple[str, Line, float]]] = {}

    def add(file: str, job: str, pod: str, more: str, swaps: dict[str, str], much: float) -> None:
        own = f'job="{job}",instance="{pod}"{more}'
        for name, value in (("up", 1.0), ("scrape_series_added", 0.0)):
            made.setdefault(name, []).append((own, Line("", value, False), 1.0))
        for name, lines in files[file].items():
            for line in lines:
                labels = line.labels
                for old, new in swaps.items():
                    labels = labels.replace(old, new)
                made.setdefault(name, []).append((join_labels(labels, own), line, much))

    for number, endpoint in enumerate(fleet.names):
        much = 1 + number % 4
        ours = f',namespace="default",endpoint_name="{endpoint}"'
        for index, pod in enumerate(fleet.pods(endpoint)):
            add("vllm-0.32.0", "vllm", pod, f'{ours},pod="{pod}"', {}, much + index / 4)
            apart = {"demo-worker-0": pod, "gpu-node-1": f"node-{number}-{index}"}
            apart["GPU-0"] = f"GPU-{number}-{index}-"
            for file in ("dcgm", "kube-state-metrics", "cadvisor"):
                add(file, file, f"{file}-{pod}", "", apart, 1.0)
        names = {'endpoint="default"': f'endpoint="{endpoint}"'}
        for index, letter in enumerate("ab"):  # the two workers of the recorded router
            names[f'worker="{letter}"'] = f'worker="{endpoint}-worker-{index}"'
        router = f',endpoint_name="{endpoint}",pod="{endpoint}-router"'
        add("emberline-router", "router", f"{endpoint}-router", router, names, much)
    add(
        "emberline-l2", "l2", "cache-default-0", ',namespace="default",pod="cache-default-0"', {}, 5
    )
    return made


def join_labels(labels: str, own: str) -> str:
    """Merge labels; an exporter's own win over its target's (honor_labels)."""
    added = [pair for pair in own.split(",") if f",{pair.partition('=')[0]}=" not in f",{labels}"]
    return ",".join([labels, *added])


def load(moment: int, start: int) -> float:
    """Return how often the recording has repeated since `start`: once a minute, more by day."""
    turn = 2 * math.pi / DAY_S
    return (moment - start - 0.7 / turn * math.sin(turn * (moment - start))) / 60


def month_blocks(fleet: Fleet, now: int) -> Iterator[tuple[int, Iterator[str]]]:
    """Yield start and text of each block."""
    made = series(fleet)
    times = fleet.times(now)
    start = times[0]
    for begin in range(start // BLOCK_S * BLOCK_S, now + 1, BLOCK_S):
        within = [moment for moment in times if begin <= moment < begin + BLOCK_S]
        if within:
            yield begin, _text(made, within, start)


def _text(
    made: dict[str, list[tuple[str, Line, float]]], times: Sequence[int], start: int
) -> Iterator[str]:
    happened = [load(moment, start) for moment in times]
    swing = [1 - 0.5 * math.cos(2 * math.pi * (moment - start) / DAY_S) for moment in times]
    for name, lines in made.items():
        for labels, line, much in lines:
            prefix = f"{name}{{{labels}}}"
            if not line.grows:
                values = (
                    [line.value] * len(times) if name in _CONSTANT else _gauge(line.value, swing)
                )
            elif name.endswith("_sum") or line.value != int(line.value):
                values = [round(line.value * much * times_, 3) for times_ in happened]
            else:
                values = [int(line.value * much * times_) for times_ in happened]
            yield "".join([f"{prefix} {v} {t}\n" for v, t in zip(values, times, strict=True)])
    yield from _kept(made, times, start)
    yield "# EOF\n"


def _kept(
    made: dict[str, list[tuple[str, Line, float]]], times: Sequence[int], start: int
) -> Iterator[str]:
    """Yield the recording rules' output, which is not aligned to minutes."""
    for family in growth.FAMILIES:
        first = times[0] + (17 - times[0]) % family.every_s
        moments = range(first, times[-1] + 1, family.every_s)
        each = family.every_s
        grown = [(load(at, start) - load(at - each, start)) / each for at in moments]
        yield from _of_family(family, made, moments, grown)


def _of_family(
    family: growth.Family,
    made: dict[str, list[tuple[str, Line, float]]],
    moments: Sequence[int],
    grown: Sequence[float],
) -> Iterator[str]:
    counters = set(list_counters())
    found = {f"{family.scraped}{{}}": float(len(made["up"]))}
    for name, lines in made.items():
        for labels, line, much in lines if name in counters else ():
            each = line.value * much
            if not family.sums_only:
                found[f"{family.each}{name}{{{labels}}}"] = each
            pairs = [
                pair
                for pair in labels.split(",")
                if pair.partition("=")[0] not in growth.WORKER_LABELS
            ]
            of_all = f"{family.all}{name}{{{','.join(pairs)}}}"
            found[of_all] = found.get(of_all, 0.0) + each
    for labels, _, much in made[n.PROMPT]:
        own = ",".join(p for p in labels.split(",") if p.partition("=")[0] in _ENDPOINT)
        for tier in ("device", "l1", "l2", "beyond", "computed"):
            key = f'{family.all}{cache.TIER_TOKENS}{{{own},tier="{tier}"}}'
            found[key] = found.get(key, 0.0) + much
    found |= _sum_fleet(family, found)
    if family == growth.COPIES:
        for name in ("gpu_faults", "pods_ready", "gpus_of_workers"):
            found[f"{family.fleet}{name}{{}}"] = 1.0
        found[f'{family.fleet}pods_ready_by_endpoint{{endpoint_name="llm-0"}}'] = 1.0
        for pod in sorted({part for key in found for part in re.findall(r'pod="(llm[^"]+)"', key)}):
            found[f'{family.fleet}restarts_by_worker{{pod="{pod}"}}'] = 1.0
        for phase in ("Running", "Pending", "Succeeded", "Failed", "Unknown"):
            found[f'{family.fleet}pods_by_phase{{phase="{phase}"}}'] = 1.0
        for name in n.COPIED:
            for labels, line, _ in made.get(name, ()):
                yield _copies(f"{family.now}{name}{{{labels}}}", name, line, moments)
    for prefix, each in found.items():
        is_marker = prefix.startswith((family.scraped, family.fleet_scraped))
        shares = [1.0] * len(grown) if is_marker else grown
        pairs_of = zip(shares, moments, strict=True)
        yield "".join([f"{prefix} {each * share:.9g} {at}\n" for share, at in pairs_of])


def _sum_fleet(family: growth.Family, each: dict[str, float]) -> dict[str, float]:
    """Of one endpoint, which bench/blocks.py copies: the number of series is that of the fleet."""
    counters = list_fleet_counters()
    found = {f"{family.fleet_scraped}{{}}": 1.0}
    for key, value in each.items():
        name, _, labels = key.removeprefix(family.all).partition("{")
        if key.startswith(family.all) and name in counters:
            kept = (
                pair for pair in labels[:-1].split(",") if pair.partition("=")[0] in counters[name]
            )
            summed = f"{family.fleet}{name}{{{','.join(sorted(kept))}}}"
            found[summed] = found.get(summed, 0.0) + value
    return found


def _copies(prefix: str, name: str, line: Line, moments: Sequence[int]) -> str:
    swing = [1 - 0.5 * math.cos(2 * math.pi * at / DAY_S) for at in moments]
    values = [line.value] * len(moments) if name in _CONSTANT else _gauge(line.value, swing)
    return "".join([f"{prefix} {v} {t}\n" for v, t in zip(values, moments, strict=True)])


def _gauge(recorded_: float, swing: Sequence[float]) -> list[float]:
    """Return the values; a gauge recorded as zero is positive by day."""
    middle = recorded_ or 1.0
    return [round(middle * (0.4 + 0.4 * share), 4) for share in swing]


def write(fleet: Fleet, folder: Path) -> tuple[int, int]:
    """Write blocks to `folder/data`; return the number of series and bytes."""
    now = int(time.time())
    data = folder / "data"
    for begin, text in month_blocks(fleet, now):
        page = folder / f"{begin}.om"
        with page.open("w") as file:
            file.writelines(text)
        argv = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", "-q"]
        argv += [f"--max-block-duration={BLOCK_S // 3600}h", str(page), str(data)]
        subprocess.run(argv, check=True)
        page.unlink()
    size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    return sum(len(lines) for lines in series(fleet).values()), size
