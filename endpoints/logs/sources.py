"""Which logs of an endpoint can be read, and their lines.

Promises the containers of workers and of components alike, as last seen; lines as they come where
the platform follows a log, else the new end of it at every look. Must not know how they are shown.
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
"""What the only container is called where there are none."""


@dataclass(frozen=True, slots=True)
class Container:
    workload: str
    replica: str
    name: str
    state: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """`at` is when it was written (RFC 3339), "" where nobody says; `anew`: what came before is
    told again from here on. `ended`: no line, but the word that none will come."""

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
        """Whether lines say when they were written, so that one can go on after any of them."""
        return isinstance(self.provisioner, RollingProvisioner)

    def to_its_end(self, after: str, tail: int, stop: threading.Event) -> Iterator[LogLine]:
        """As `lines`, from at most its `tail` last ones on; then the word that it has ended."""
        if isinstance(self.provisioner, RollingProvisioner):
            yield from _followed(self.provisioner, self.container, after, tail=tail)
        else:
            yield from _looked_at(self.provisioner, self.container, stop, tail)
        yield LogLine("", ended=True)

    def lines(self, after: str, stop: threading.Event) -> Iterator[LogLine]:
        """From `after` (the `at` of a line) on, until it ends or `stop` is set; blocks."""
        if isinstance(self.provisioner, RollingProvisioner):
            return _followed(self.provisioner, self.container, after)
        return _looked_at(self.provisioner, self.container, stop)

    def end(self, tail: int, *, stay: bool) -> Iterator[LogLine]:
        """The last `tail` lines, and if asked to `stay`, what is written from then on."""
        if isinstance(self.provisioner, RollingProvisioner):
            return _followed(self.provisioner, self.container, "", tail=tail, stay=stay)
        stop = threading.Event()
        if not stay:
            stop.set()
        return _looked_at(self.provisioner, self.container, stop, tail)


def containers(endpoint: Endpoint) -> list[Container]:
    """Workers first, each with its own process's container first."""
    own = workload_name(endpoint.name)
    found = [
        Container(own, row.name, name, row.state)
        for row in selectors.workers(endpoint)
        for name in row.containers or [PROCESS]
    ]
    return found + [
        Container(row["workload"], row["name"], name, row["state"])
        for row in endpoint.status.pods
        for name in row["containers"] or [PROCESS]
    ]


def chosen(endpoint: Endpoint, replica: str, name: str) -> Container | None:
    """The one asked for; the first if none is; None where there is none at all."""
    every = containers(endpoint)
    if not every and not replica and not name:
        return None
    mine = [one for one in every if replica in ("", one.replica) and name in ("", one.name)]
    if not mine:
        known = [f"{one.replica} ({one.name})" for one in every]
        raise no_container(endpoint.name, replica, name, known)
    return mine[0]


def tails(endpoint: Endpoint, lines: int) -> dict[str, str]:
    """The end of each worker's log, by its name."""
    provisioner = provisioner_of(endpoint.parsed)
    return dict(provisioner.logs(Ref(provisioner.name, workload_name(endpoint.name)), lines))


def source(endpoint: Endpoint, container: Container) -> LogSource:
    return LogSource(provisioner_of(endpoint.parsed), container)


def _followed(
    provisioner: RollingProvisioner,
    at: Container,
    after: str,
    *,
    tail: int = _FIRST_LINES,
    stay: bool = True,
) -> Iterator[LogLine]:
    """A cluster counts whole seconds: what was told already is left out."""
    ref = Ref(provisioner.name, at.workload)
    told = provisioner.follow(ref, at.replica, at.name, _epoch(after), tail=tail, stay=stay)
    for line in told:
        stamp, _, text = line.partition(" ")
        if not after or _order(stamp) > _order(after):
            yield LogLine(text, stamp)


def _looked_at(
    provisioner: Provisioner, at: Container, stop: threading.Event, tail: int = TAIL_LINES
) -> Iterator[LogLine]:
    ref = Ref(provisioner.name, at.workload)
    # More than what is shown at first, so that a busy log is known again at the next look.
    most = max(tail, TAIL_LINES)
    before: list[str] | None = None
    while True:
        now = provisioner.logs(ref, most).get(at.replica, "").splitlines()
        known = max(len(now) - tail, 0) if before is None else overlap(before, now)
        anew = before is None or not known
        for text in now[known:]:
            yield LogLine(text, anew=anew)
            anew = False
        before = now
        if stop.wait(LOOK_S):
            return


def overlap(before: list[str], now: list[str]) -> int:
    """How many of the first lines now are the last ones from before."""
    most = min(len(before), len(now))
    return next((k for k in range(most, 0, -1) if before[-k:] == now[:k]), 0)


def _epoch(stamp: str) -> float:
    try:
        return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0
    except ValueError:
        return 0.0


def _order(stamp: str) -> tuple[str, str]:
    """Comparable: a cluster leaves out zeros at the end of a fraction."""
    whole, _, fraction = stamp.rstrip("Z").partition(".")
    return whole, fraction.ljust(9, "0")
