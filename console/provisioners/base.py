"""Interface between controllers and platforms: specs go down, observations come up.

Four verbs (`apply`, `observe`, `delete`, `logs`), each idempotent and short: none waits for a
process to become ready. Only frozen dataclasses cross the interface.

An argv entry, an environment value or a file's content may hold placeholders, which the
provisioner fills in for each replica:

    {host}         address the replica listens on
    {port:NAME}    port number assigned to the port NAME
    {channel:NAME} ZeroMQ endpoint on which the replica binds the channel NAME
    {dir}          the replica's folder, which contains its `files`
    {replica}      replica index, from 0

Other braces are left alone, so JSON in an argument needs no escaping.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from console.provisioners.pods import Around, Pod

PORT_TAKEN = "PortTaken"
"""Reason of a replica whose fixed port another process holds."""
HUNG = "Hung"
"""Reason of a replica that was ready and no longer answers its probe."""


class ProvisionError(Exception):
    """Failure of a provisioner verb. `reason` is a stable CamelCase code for users and alerts."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        """Keep all fields through pickle: Celery must recognize the type as an expected error."""
        return type(self), (self.reason, self.message), dict(self.__dict__)


class TemporaryError(ProvisionError):
    """Failure worth retrying unchanged after `delay_s` seconds."""

    def __init__(self, reason: str, message: str, delay_s: float = 5.0) -> None:
        super().__init__(reason, message)
        self.delay_s = delay_s


class PermanentError(ProvisionError):
    """Failure that repeats until the spec or the machine changes."""


@dataclass(frozen=True, slots=True)
class FileSpec:
    """A file written to the replica's folder before start, mode 0600. `secret` content must not be
    readable with configuration rights alone.
    """

    path: str
    content: str
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """HTTP GET that returns 200 once the replica can serve."""

    path: str
    port: str
    timeout_s: float = 2.0


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """Everything needed to run `replicas` identical processes.

    `owner` groups the workloads of one object ("endpoint/demo"). `name` is a DNS label unique
    within the provisioner; replicas are named `name-0`, `name-1` and so on. `role` is worker,
    router or cache-node. A process starts in its replica's folder with `env` added to the machine's
    environment.

    `secret_env` maps a variable to the path of a file whose content becomes its value at apply
    time: a spec names secrets and never contains them, and a change of a secret alone restarts
    nothing. `secret_files` does the same for paths in the replica's folder. `secrets_within` maps a
    variable of `secret_env` to the folder its file must be in, because the file name comes from a
    user.

    `live_files` may change without a restart (the process watches them) and `memory_bytes` may be
    changed under a running process, so neither counts in `spec_hash`. `channels` are sockets
    without authentication; the provisioner restricts them to processes of the same owner. `pod` and
    `around` apply to provisioners with pods (`around` restarts nothing); others ignore them.
    `shared_ports` have one number for all replicas on a machine, which bind it with SO_REUSEPORT;
    pods have addresses of their own. `preferred_ports` are tried first on a machine that does not
    know the workload yet.
    """

    owner: str
    name: str
    role: str
    argv: tuple[str, ...]
    ports: tuple[str, ...]
    probe: Probe
    replicas: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: Mapping[str, str] = field(default_factory=dict)
    files: tuple[FileSpec, ...] = ()
    live_files: tuple[FileSpec, ...] = ()
    channels: tuple[str, ...] = ()
    image: str = ""
    gpus: int = 0
    cpus: float = 0.0
    memory_bytes: int = 0
    stop_grace_s: int = 30
    secret_files: Mapping[str, str] = field(default_factory=dict)
    secrets_within: Mapping[str, str] = field(default_factory=dict)
    pod: Pod | None = None
    around: Around | None = None
    shared_ports: tuple[str, ...] = ()
    preferred_ports: Mapping[str, int] = field(default_factory=dict)

    @property
    def spec_hash(self) -> str:
        """Return 16 hex digits over every field whose change requires a restart."""
        content = asdict_plain(self)
        for live in _LIVE:
            content.pop(live, None)
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


_LIVE = (
    *("live_files", "replicas", "memory_bytes", "around", "secrets_within", "preferred_ports"),
)
_OMITTED_WHILE_EMPTY = (
    *("secret_files", "secrets_within", "pod", "around", "shared_ports", "preferred_ports"),
)


def asdict_plain(spec: WorkloadSpec) -> dict[str, object]:
    """Return the spec as JSON-ready values. Optional fields are left out while empty, so that
    adding a field does not change the hashes of running replicas.
    """
    document: dict[str, object] = {}
    for name in spec.__dataclass_fields__:
        value = getattr(spec, name)
        if name in _OMITTED_WHILE_EMPTY and not value:
            continue
        if isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, tuple):
            # `secret` decides where a file is stored, not what the process reads.
            value = [
                {"path": item.path, "content": item.content} if isinstance(item, FileSpec) else item
                for item in value
            ]
        elif isinstance(value, Probe | Pod | Around):
            value = asdict(value)
        document[name] = value
    return document


@dataclass(frozen=True, slots=True)
class Ref:
    """Handle of an applied workload: equal for every `apply` of the same name."""

    provisioner: str
    name: str


class ReplicaState(StrEnum):
    """State of one process, derived from the platform and its probe."""

    STARTING = "starting"  # process runs, probe refused or not 200
    READY = "ready"  # probe returns 200
    STOPPING = "stopping"  # stop requested, still draining
    BACKOFF = "backoff"  # exited, will be restarted
    EXITED = "exited"  # not running; only the next `apply` starts it
    UNKNOWN = "unknown"  # process runs, probe timed out: hung or busy


@dataclass(frozen=True, slots=True)
class ReplicaObservation:
    """One observed replica.

    `urls` maps port names to `http://host:port`, `channels` channel names to the ZeroMQ endpoint
    for peers. `started_at` is epoch seconds of the current process (0: none); `restarts` counts
    exits seen by the supervisor since the replica was created. `reason` is a stable CamelCase code
    for not being ready (Unschedulable, ImagePullBackOff, OOMKilled), "" if unknown. `node` is the
    machine, `containers` lists the containers with logs, the main one first.
    """

    name: str
    index: int
    state: ReplicaState
    spec_hash: str
    urls: Mapping[str, str]
    pid: int = 0
    started_at: float = 0.0
    restarts: int = 0
    message: str = ""
    channels: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    node: str = ""
    created_at: float = 0.0
    containers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartCondition:
    """Condition of one related object (rollout, route, certificate, autoscaler) named `part`.
    `ready` is None while unknown.
    """

    part: str
    ready: bool | None
    reason: str = ""
    message: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """Cluster event about one of the workload's objects. Times are epoch seconds."""

    subject: str
    reason: str
    message: str
    warning: bool = False
    count: int = 1
    first_at: float = 0.0
    last_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Drift:
    """A field that differs from the applied value, and the field manager that set it ("" if none
    owns it). `path` is like `.spec.replicas`; values are JSON.
    """

    object: str
    path: str
    wanted: Any
    found: Any
    manager: str = ""
    since: float = 0.0

    @property
    def key(self) -> str:
        """Identify the field within a workload: `Deployment/demo-worker.spec.replicas`."""
        return f"{self.object}{self.path}"


@dataclass(frozen=True, slots=True)
class Observation:
    """State of everything under a Ref.

    `exists` is False when nothing is left. `wanted` is the replica count requested by an
    autoscaler, None if the spec decides. `url` is the external address, "" if not exposed or not
    assigned yet. `failed` is a stable reason if the platform abandoned the rollout of the current
    spec (`message` has details).
    """

    exists: bool
    replicas: tuple[ReplicaObservation, ...] = ()
    message: str = ""
    wanted: int | None = None
    url: str = ""
    failed: str = ""
    parts: tuple[PartCondition, ...] = ()
    events: tuple[ClusterEvent, ...] = ()
    drift: tuple[Drift, ...] = ()

    def ready(self, spec_hash: str | None = None) -> tuple[ReplicaObservation, ...]:
        """Return replicas that can serve, limited to `spec_hash` if given."""
        return tuple(
            r
            for r in self.replicas
            if r.state is ReplicaState.READY and spec_hash in (None, r.spec_hash)
        )


class Provisioner(Protocol):
    """Turns specs into running processes.

    `apply` creates missing replicas, removes surplus ones (highest index first) and replaces
    outdated ones, at most one per call: a serving replica only while all other wanted ones serve,
    one that certainly does not serve at any time. Call again until `observe` shows the wanted hash
    everywhere. A replaced replica keeps its index and ports. `observe` and `apply` may complete
    work begun by an earlier call. Verbs raise only `TemporaryError` and `PermanentError`.

    If `rolls` is true, the platform does the replacing: new replicas start beside old ones, and old
    ones end once new ones are ready; names and addresses change, an index is only an order, and the
    caller plans no replacement.

    If `announces` is true, changes of its processes are announced (processkit.changes, or watches
    of the cluster), so that periodic observation is only a safety net.
    """

    name: str
    rolls: bool

    @property
    def announces(self) -> bool: ...

    def apply(self, spec: WorkloadSpec) -> Ref: ...

    def observe(self, ref: Ref) -> Observation: ...

    def delete(self, ref: Ref) -> None:
        """Request deletion; complete when `observe` returns `exists=False`."""
        ...

    def logs(self, ref: Ref, tail_lines: int = 200) -> Mapping[str, str]:
        """Return the last lines of each replica's log, by replica name."""
        ...


@runtime_checkable
class RollingProvisioner(Provisioner, Protocol):
    """Additional verbs of a provisioner with `rolls`; idempotent and, except `follow`, short."""

    def heal(self, ref: Ref) -> None:
        """Restore every drifted field, regardless of its manager."""
        ...

    def adopt(self, ref: Ref, paths: tuple[str, ...]) -> None:
        """Leave these fields (`Drift.key`) to their current managers from now on."""
        ...

    def follow(
        self,
        ref: Ref,
        replica: str,
        container: str,
        since: float = 0.0,
        *,
        tail: int = 100,
        stay: bool = True,
    ) -> Iterator[str]:
        """Yield lines of one container from `since` on (epoch seconds; 0: the last `tail`), each
        prefixed with its time (RFC 3339) and a space. Ends with the container, when the iterator is
        closed, or (without `stay`) after the existing lines.
        """
        ...
