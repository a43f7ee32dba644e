"""Log sources of an endpoint: containers of its workers and components, and their lines.

Lines are streamed where the platform can follow a log, else polled.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from console.provisioners.base import Provisioner, Ref, RollingProvisioner
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.placement.provisioner import provisioner_of
from endpoints.refusals import no_container
from endpoints.workload.worker_spec import workload_name

TAIL_LINES = 200
MOST_LINES = 2000
_FIRST_LINES = 100
LOOK_S = 1.0
PROCESS = "process"
"""Name of the only log source of platforms without containers."""


@dataclass(frozen=True, slots=True)
class Container:
    workload: str
    replica: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """Line of a log stream. `at`: time of the line (RFC 3339), "" if unknown. `anew`: earlier lines
    are repeated from here. `ended`: end-of-log marker without a line.
    """

    text: str
    at: str = ""
    anew: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class LogSource:
    provisioner: Provisioner
    container: Container

    @property
    def marks(self) -> bool:
        """Return whether lines have timestamps, so that a stream can resume after any line."""
        return isinstance(self.provisioner, RollingProvisioner)

    def to_its_end(self, after: str, tail: int, stop: threading.Event) -> Iterator[LogLine]:
        """Yield at most the last `tail` lines and the following ones, then the end marker."""
        if isinstance(self.provisioner, RollingProvisioner):
            yield from _follow_lines(self.provisioner, self.container, after, tail=tail)
        else:
            yield from _poll_lines(self.provisioner, self.container, stop, tail)
        yield LogLine("", ended=True)

    def lines(self, after: str, stop: threading.Event) -> Iterator[LogLine]:
        """Yield lines after `after` (a line's `at`) until the log ends or `stop` is set. Blocks."""
        if isinstance(self.provisioner, RollingProvisioner):
            return _follow_lines(self.provisioner, self.container, after)
        return _poll_lines(self.provisioner, self.container, stop)

    def end(self, tail: int) -> Iterator[LogLine]:
        """Yield the last `tail` lines."""
        if isinstance(self.provisioner, RollingProvisioner):
            return _follow_lines(self.provisioner, self.container, "", tail=tail, stay=False)
        stop = threading.Event()
        stop.set()
        return _poll_lines(self.provisioner, self.container, stop, tail)


def containers(endpoint: Endpoint) -> list[Container]:
    own = workload_name(endpoint.name)
    listed = [
        Container(own, row.name, name, row.state)
        for row in selectors.workers(endpoint)
        for name in row.containers or [PROCESS]
    ]
    return listed + [
        Container(row["workload"], row["name"], name, row["state"])
        for row in endpoint.status.pods
        for name in row["containers"] or [PROCESS]
    ]


def choose_container(endpoint: Endpoint, replica: str, name: str) -> Container | None:
    """Return the selected container, the first one by default, None without any."""
    every = containers(endpoint)
    if not every and not replica and not name:
        return None
    mine = [
        container
        for container in every
        if replica in ("", container.replica) and name in ("", container.name)
    ]
    if not mine:
        names = [f"{container.replica} ({container.name})" for container in every]
        raise no_container(endpoint.name, replica, name, names)
    return mine[0]


def log_tails(endpoint: Endpoint, lines: int) -> dict[str, str]:
    provisioner = provisioner_of(endpoint.parsed)
    return dict(provisioner.logs(Ref(provisioner.name, workload_name(endpoint.name)), lines))


def log_source(endpoint: Endpoint, container: Container) -> LogSource:
    return LogSource(provisioner_of(endpoint.parsed), container)


def _follow_lines(
    provisioner: RollingProvisioner,
    at: Container,
    after: str,
    *,
    tail: int = _FIRST_LINES,
    stay: bool = True,
) -> Iterator[LogLine]:
    """Yield lines after `after`; drop repetitions, since clusters resume at whole seconds."""
    ref = Ref(provisioner.name, at.workload)
    lines = provisioner.follow(ref, at.replica, at.name, _epoch(after), tail=tail, stay=stay)
    for line in lines:
        stamp, _, text = line.partition(" ")
        if not after or _order(stamp) > _order(after):
            yield LogLine(text, stamp)


def _poll_lines(
    provisioner: Provisioner, at: Container, stop: threading.Event, tail: int = TAIL_LINES
) -> Iterator[LogLine]:
    ref = Ref(provisioner.name, at.workload)
    # More than displayed at first, so that polls of a busy log still overlap.
    most = max(tail, TAIL_LINES)
    before: list[str] | None = None
    while True:
        now = provisioner.logs(ref, most).get(at.replica, "").splitlines()
        overlap_count = max(len(now) - tail, 0) if before is None else overlap(before, now)
        anew = before is None or not overlap_count
        for text in now[overlap_count:]:
            yield LogLine(text, anew=anew)
            anew = False
        before = now
        if stop.wait(LOOK_S):
            return


def overlap(before: list[str], now: list[str]) -> int:
    """Return how many of the first lines of `now` are the last ones of `before`."""
    most = min(len(before), len(now))
    return next((k for k in range(most, 0, -1) if before[-k:] == now[:k]), 0)


def _epoch(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0
    except ValueError:
        return 0.0


def _order(stamp: str) -> tuple[str, str]:
    """Return a sort key: clusters omit trailing zeros of the fraction."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return whole, fraction.ljust(9, "0")
