"""State of the local provisioner for one workload: `var/workloads/NAME/state.json`.

A change is on disk before the step it announces, so that the next call can complete an interrupted
sequence. Facts available from supervisord or the process table are not stored.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from console.processkit.files import hold_lock, make_private_dir, write_private
from console.provisioners.base import TemporaryError

# The router port, which is published to callers. Other addresses are re-read from here by their
# users, so a replica whose port is taken by another process gets a new one.
_FIXED_PORTS = {"router": ("http",)}
_FILES = 64
_WAIT_S = 10.0


class Goal(StrEnum):
    RUN = "run"
    REPLACE = "replace"  # being stopped; the next apply starts the new spec
    REMOVE = "remove"  # being stopped, then removed


@dataclass(slots=True)
class Replica:
    """Stored state of one process. `spec_hash` is empty while unknown: between two steps, or
    adopted.
    """

    spec_hash: str = ""
    goal: Goal = Goal.RUN
    ports: dict[str, int] = field(default_factory=dict)
    channels: list[str] = field(default_factory=list)
    probe_path: str = ""
    probe_port: str = ""
    probe_timeout_s: float = 2.0


@dataclass(slots=True)
class Workload:
    name: str
    owner: str = ""
    role: str = ""
    deleting: bool = False
    replicas: dict[int, Replica] = field(default_factory=dict)


def fixed_ports(role: str) -> tuple[str, ...]:
    return _FIXED_PORTS.get(role, ())


def workloads_dir(var: Path) -> Path:
    return var / "workloads"


def workload_dir(var: Path, name: str) -> Path:
    return workloads_dir(var) / name


def replica_dir(var: Path, name: str, index: int) -> Path:
    return workload_dir(var, name) / str(index)


def load(var: Path, name: str) -> Workload | None:
    """Return the state, None if absent or unreadable."""
    try:
        document = json.loads(_path(var, name).read_text(encoding="utf-8"))
        replicas = {
            int(index): Replica(**{**replica, "goal": Goal(replica["goal"])})
            for index, replica in document["replicas"].items()
        }
        role = document.get("role", "")  # missing in files of the first version
        return Workload(name, document["owner"], role, document["deleting"], replicas)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def save(var: Path, workload: Workload) -> None:
    path, text = _path(var, workload.name), json.dumps(asdict(workload), indent=1)
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    make_private_dir(path.parent)
    write_private(path, text)


def ports_in_use(var: Path) -> set[int]:
    ports_in_use: set[int] = set()
    if not workloads_dir(var).is_dir():
        return ports_in_use
    for folder in workloads_dir(var).iterdir():
        workload = load(var, folder.name)
        if workload is not None:
            for replica in workload.replicas.values():
                ports_in_use.update(replica.ports.values())
    return ports_in_use


def _path(var: Path, name: str) -> Path:
    return workload_dir(var, name) / "state.json"


@contextmanager
def workload_lock(var: Path, name: str) -> Iterator[None]:
    with _hold_lock(var, f"workload-{zlib.crc32(name.encode()) % _FILES:02d}"):
        yield


@contextmanager
def ports_lock(var: Path) -> Iterator[None]:
    """Lock port allocation. Acquire it inside a workload's lock, never the other way round."""
    with _hold_lock(var, "ports"):
        yield


@contextmanager
def _hold_lock(var: Path, name: str) -> Iterator[None]:
    folder = var / "run" / "locks"
    make_private_dir(folder)
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(folder / name, _WAIT_S))
        except TimeoutError:
            raise TemporaryError(
                "Busy", "Another operation on this workload is in progress.", delay_s=1.0
            ) from None
        yield
