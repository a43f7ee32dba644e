"""Provisioner without processes: replicas exist only as records.

For demonstrations and tests: a new replica is `starting` on first observation and `ready` from
the second; a removed one is `stopping` once, then gone. With a path, several processes share one
JSON file; otherwise state is in the instance. Logs state that it is a fake, and its addresses do
not respond.
"""

from __future__ import annotations

import fcntl
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from console.provisioners.base import (
    Observation,
    Ref,
    ReplicaObservation,
    ReplicaState,
    TemporaryError,
    WorkloadSpec,
)
from console.provisioners.rollout import plan_step
from console.provisioners.specs import check_ref, check_spec

FIRST_PORT = 30000


@dataclass(slots=True)
class _Replica:
    spec_hash: str
    ports: dict[str, int]
    channels: list[str] = field(default_factory=list)
    state: ReplicaState = ReplicaState.STARTING
    looks: int = 0
    started_at: float = 0.0
    restarts: int = 0


@dataclass(slots=True)
class _Workload:
    deleting: bool = False
    replicas: dict[int, _Replica] = field(default_factory=dict)


@dataclass(slots=True)
class _FakeState:
    next_port: int = FIRST_PORT
    workloads: dict[str, _Workload] = field(default_factory=dict)


class FakeProvisioner:
    name = "fake"
    rolls = False
    announces = False

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._memory = _FakeState()

    def apply(self, spec: WorkloadSpec) -> Ref:
        check_spec(spec)
        with self._state() as state:
            workload = state.workloads.setdefault(spec.name, _Workload())
            if workload.deleting:
                raise TemporaryError(
                    "StillStopping", f"{spec.name} is still being deleted.", delay_s=1.0
                )
            step = plan_step(spec.replicas, spec.spec_hash, _observe(spec.name, workload))
            for index in step.create:
                ports = {name: _port(state) for name in spec.ports}
                workload.replicas[index] = _start(spec, ports)
            for index in step.remove:
                workload.replicas[index].state = ReplicaState.STOPPING
                workload.replicas[index].looks = 0
            if step.replace is not None:
                previous_ports = workload.replicas[step.replace].ports
                new = {port: previous_ports.get(port) or _port(state) for port in spec.ports}
                workload.replicas[step.replace] = _start(spec, new)
        return Ref(self.name, spec.name)

    def observe(self, ref: Ref) -> Observation:
        check_ref(ref, self.name)
        with self._state() as state:
            workload = state.workloads.get(ref.name)
            if workload is None:
                return Observation(exists=False)
            _advance(workload)
            if workload.deleting and not workload.replicas:
                del state.workloads[ref.name]
                return Observation(exists=False)
            return Observation(exists=True, replicas=_observe(ref.name, workload))

    def delete(self, ref: Ref) -> None:
        check_ref(ref, self.name)
        with self._state() as state:
            workload = state.workloads.get(ref.name)
            if workload is None or workload.deleting:
                return
            workload.deleting = True
            for replica in workload.replicas.values():
                replica.state = ReplicaState.STOPPING
                replica.looks = 0

    def logs(self, ref: Ref, tail_lines: int = 200) -> Mapping[str, str]:
        check_ref(ref, self.name)
        lines = ["Simulated replica: no process runs.\n"][:tail_lines]
        with self._state() as state:
            workload = state.workloads.get(ref.name, _Workload())
            return {f"{ref.name}-{index}": "".join(lines) for index in sorted(workload.replicas)}

    def crash(self, ref: Ref, index: int) -> None:
        """Simulate a crash of one replica, which then restarts by itself."""
        check_ref(ref, self.name)
        with self._state() as state:
            replica = state.workloads[ref.name].replicas[index]
            replica.state = ReplicaState.BACKOFF
            replica.looks = 0
            replica.restarts += 1

    @contextmanager
    def _state(self) -> Iterator[_FakeState]:
        """Hold the state exclusively; write it back when the block ends without an error."""
        if self._path is None:
            with self._lock:
                yield self._memory
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = _load(self._path)
            yield state
            temporary = self._path.with_suffix(".new")
            temporary.write_text(json.dumps(asdict(state), indent=1))
            temporary.replace(self._path)


def _start(spec: WorkloadSpec, ports: dict[str, int]) -> _Replica:
    return _Replica(spec.spec_hash, ports, list(spec.channels), started_at=time.time())


def _port(state: _FakeState) -> int:
    state.next_port += 1
    return state.next_port - 1


def _advance(workload: _Workload) -> None:
    """Advance every replica by one step per observation."""
    for index, replica in list(workload.replicas.items()):
        replica.looks += 1
        if replica.looks < 2:
            continue
        if replica.state is ReplicaState.STOPPING:
            del workload.replicas[index]
        elif replica.state is ReplicaState.BACKOFF:
            replica.state, replica.looks = ReplicaState.STARTING, 1
            replica.started_at = time.time()
        else:
            replica.state = ReplicaState.READY


def _observe(name: str, workload: _Workload) -> tuple[ReplicaObservation, ...]:
    return tuple(
        ReplicaObservation(
            name=f"{name}-{index}",
            index=index,
            state=replica.state,
            spec_hash=replica.spec_hash,
            urls={port: f"http://127.0.0.1:{number}" for port, number in replica.ports.items()},
            started_at=replica.started_at,
            restarts=replica.restarts,
            message="Simulated.",
            channels={channel: f"ipc://{name}-{index}-{channel}" for channel in replica.channels},
        )
        for index, replica in sorted(workload.replicas.items())
    )


def _load(path: Path) -> _FakeState:
    try:
        document = json.loads(path.read_text())
    except FileNotFoundError:
        return _FakeState()
    state = _FakeState(next_port=document["next_port"])
    for name, workload in document["workloads"].items():
        replicas = {
            int(index): _Replica(**{**replica, "state": ReplicaState(replica["state"])})
            for index, replica in workload["replicas"].items()
        }
        state.workloads[name] = _Workload(workload["deleting"], replicas)
    return state
