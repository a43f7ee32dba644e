"""Effects of saving a change: changed fields, restarts, changed worker arguments.

Reads the database only, since it is called on every edit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import ndiff

from console.provisioners.base import ProvisionError, WorkloadSpec
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.placement.preview import workload_of
from endpoints.spec.endpoint_spec import EndpointSpec, FieldChange, diff, parse


@dataclass(frozen=True, slots=True)
class ConsequenceLine:
    """One worker argument; `sign` "+" if added, "-" if removed, else ""."""

    text: str
    sign: str = ""


@dataclass(frozen=True, slots=True)
class Consequences:
    """Consequences of an edit. `restarts`: None if unknown. `running`: the revision still serving
    during a rollout, 0 if it is the desired one; `to_running`: the differences from it.
    """

    changes: tuple[FieldChange, ...] = ()
    restarts: bool | None = False
    workers: int = 0
    command: tuple[ConsequenceLine, ...] = ()
    running: int = 0
    to_running: tuple[FieldChange, ...] = ()


def find_consequences(
    spec: EndpointSpec, present: Endpoint | None, refused: Iterable[str]
) -> Consequences:
    """`refused`: paths whose invalid input is missing in `spec`."""
    after = _workload(spec)
    if present is None:
        return Consequences(command=command(None, after))
    before = _workload(present.parsed)
    apart = frozenset(refused)
    changes = _without_fields(apart, diff(present.parsed, spec))
    number, running = _running(present)
    return Consequences(
        changes,
        _restarts(before, after) if changes else False,
        selectors.wanted_replicas(present),
        command(before, after),
        number,
        _without_fields(apart, diff(running, spec)) if running is not None else (),
    )


def command(before: WorkloadSpec | None, after: WorkloadSpec | None) -> tuple[ConsequenceLine, ...]:
    if after is None:
        return ()
    new = command_lines(after.argv)
    if before is None:
        return tuple(ConsequenceLine(text) for text in new)
    marked = [line for line in ndiff(command_lines(before.argv), new) if line[0] != "?"]
    return tuple(ConsequenceLine(line[2:], line[0].strip()) for line in marked)


def command_lines(argv: tuple[str, ...]) -> list[str]:
    """Return one line per flag with its value."""
    out: list[str] = []
    for word in argv:
        if out and not word.startswith("-") and out[-1].startswith("-") and " " not in out[-1]:
            out[-1] = f"{out[-1]} {word}"
        else:
            out.append(word)
    return out


def _workload(spec: EndpointSpec) -> WorkloadSpec | None:
    if not spec.model:
        return None
    try:
        return workload_of(spec)
    except ProvisionError:
        return None  # unknown cluster; its field shows the error


def _restarts(before: WorkloadSpec | None, after: WorkloadSpec | None) -> bool | None:
    if before is None or after is None:
        return None
    return replace(before, replicas=0) != replace(after, replicas=0)


def _running(endpoint: Endpoint) -> tuple[int, EndpointSpec | None]:
    served = endpoint.status.served_generation
    if not served or served == endpoint.generation:
        return 0, None
    revision = endpoint.revisions.filter(number=served).first()
    return (served, parse(revision.spec)) if revision else (0, None)


def _without_fields(
    refused: frozenset[str], changes: tuple[FieldChange, ...]
) -> tuple[FieldChange, ...]:
    return tuple(
        change for change in changes if change.path not in refused and change.path != "manifest"
    )
