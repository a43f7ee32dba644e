"""The waist between what is wanted and what runs: specs go down, observations come up.

Promises that a caller needs only four verbs (`apply`, `observe`, `delete`, `logs`), that every
verb is idempotent and short (none waits for a process to become ready), and that nothing but
frozen dataclasses crosses. Must not know Django, Celery, endpoints, routers or caches.

An argv entry, an environment value or a file's content may hold placeholders, which the
provisioner fills for each replica:

    {host}         address the replica listens on
    {port:NAME}    the port the provisioner gave to the port called NAME
    {channel:NAME} where the replica binds the channel called NAME, as a ZeroMQ endpoint
    {dir}          the replica's own folder, where its `files` are placed
    {replica}      the replica's index, from 0

Braces are otherwise left alone, so JSON in an argument needs no escaping.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from console.provisioners.pods import Around, Pod


class ProvisionError(Exception):
    """A verb could not do its work. `reason` is a stable CamelCase code for people and alerts."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message

    def __reduce__(self) -> tuple[object, ...]:
        """Whole through pickle: Celery must know an outcome again to call it an expected one."""
        return type(self), (self.reason, self.message), dict(self.__dict__)


class TemporaryError(ProvisionError):
    """Worth trying again unchanged, after `delay_s` seconds."""

    def __init__(self, reason: str, message: str, delay_s: float = 5.0) -> None:
        super().__init__(reason, message)
        self.delay_s = delay_s


class PermanentError(ProvisionError):
    """Will fail again until the spec or the machine changes."""


@dataclass(frozen=True, slots=True)
class FileSpec:
    """A file placed in the replica's folder before it starts, mode 0600. `secret`: its content
    is not for everybody who may read configuration."""

    path: str
    content: str
    secret: bool = False


@dataclass(frozen=True, slots=True)
class Probe:
    """An HTTP GET which answers 200 once the replica can serve."""

    path: str
    port: str
    timeout_s: float = 2.0


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """Everything needed to run `replicas` equal processes.

    `owner` groups workloads which belong to one object ("endpoint/demo"); `name` is a DNS label
    unique within the provisioner, its replicas are called `name-0` and so on; `role` is worker,
    router or cache-node. A process starts in its replica's folder, with `env` added to the
    environment of the machine. `secret_env` maps a variable's name to the path of a file whose
    content becomes its value at apply time: a spec names secrets, it never holds them (and a
    secret that changes alone restarts nothing). `live_files` may change without a restart (the
    process watches them), so they do not count in `spec_hash`; nor does `memory_bytes`, a limit
    which a provisioner that enforces it may be able to move under a running process. `channels`
    are sockets without a login which only processes of the same owner may reach: the provisioner
    sees to that. `secret_files` maps a path in the replica's folder to the file whose content it
    gets, as `secret_env` does for variables. `secrets_within` maps a variable of `secret_env` to
    the folder out of which its file is never read: the name is a user's. `pod` and `around` are
    for provisioners which have pods (`around` restarts nothing); the others ignore them.
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

    @property
    def spec_hash(self) -> str:
        """Sixteen hex digits over all that needs a restart when it changes."""
        facts = asdict_plain(self)
        for live in ("live_files", "replicas", "memory_bytes", "around", "secrets_within"):
            facts.pop(live, None)
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def asdict_plain(spec: WorkloadSpec) -> dict[str, object]:
    """The spec as JSON-ready values (mapping proxies become dicts). What only some specs have is
    left out where it is empty, so that hashes of replicas which run do not change by its coming."""
    facts: dict[str, object] = {}
    for name in spec.__dataclass_fields__:
        value = getattr(spec, name)
        if name in ("secret_files", "secrets_within", "pod", "around") and not value:
            continue
        if isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, tuple):
            value = [_file(item) if isinstance(item, FileSpec) else item for item in value]
        elif isinstance(value, Probe | Pod | Around):
            value = asdict(value)
        facts[name] = value
    return facts


def _file(file: FileSpec) -> dict[str, object]:
    """Secret or not is where it lies, not what the process reads."""
    return {"path": file.path, "content": file.content}


@dataclass(frozen=True, slots=True)
class Ref:
    """Where an applied workload is found again: equal for every `apply` of the same name."""

    provisioner: str
    name: str


PORT_TAKEN = "PortTaken"
"""Reason of a replica whose fixed port another process holds."""


class ReplicaState(StrEnum):
    """What one process is doing, as far as the provisioner can see without asking the process
    more than its probe."""

    STARTING = "starting"  # process runs, its probe refuses or says no
    READY = "ready"  # probe answers 200
    STOPPING = "stopping"  # asked to end, still draining
    BACKOFF = "backoff"  # died, will be started again
    EXITED = "exited"  # does not run; started again by the next `apply` only
    UNKNOWN = "unknown"  # process runs, its probe did not answer in time: hung or only busy


@dataclass(frozen=True, slots=True)
class ReplicaObservation:
    """One replica as seen now. `urls` maps port names to `http://host:port`, `channels` channel
    names to the ZeroMQ endpoint where a peer connects; `started_at` is epoch seconds of the
    present process (0 if none); `restarts` counts deaths the supervisor has seen since the
    replica was created. `reason` is a stable CamelCase code of why it is not ready
    (Unschedulable, ImagePullBackOff, OOMKilled), "" where nobody says; `node` the machine it runs
    on; `containers` the names whose logs can be read, the process's own first."""

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
    """Of one object around the replicas (a rollout, a route, a certificate, a scaler): `part`
    names it, `ready` None while nobody says."""

    part: str
    ready: bool | None
    reason: str = ""
    message: str = ""
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """An event of the cluster about one of the workload's objects. Times are epoch seconds."""

    subject: str
    reason: str
    message: str
    warning: bool = False
    count: int = 1
    first_at: float = 0.0
    last_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Drift:
    """A field which is not as we want it, and who else set it (a field manager, "" if nobody
    owns it any more). `path` as in `.spec.replicas`; values as JSON."""

    object: str
    path: str
    wanted: Any
    found: Any
    manager: str = ""
    since: float = 0.0

    @property
    def key(self) -> str:
        """Names the field among all of a workload: `Deployment/demo-worker.spec.replicas`."""
        return f"{self.object}{self.path}"


@dataclass(frozen=True, slots=True)
class Observation:
    """What runs under a Ref. `exists` is False when nothing of it is left. `wanted`: how many
    replicas an autoscaler wants now, None where the spec alone decides. `url`: where callers
    outside reach it, "" if it is not exposed or has no address yet. `failed`: a stable reason
    when the platform has given up on rolling out the present spec (`message` says more)."""

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
        """Replicas which can serve (and run the given spec, if one is given)."""
        return tuple(
            r
            for r in self.replicas
            if r.state is ReplicaState.READY and spec_hash in (None, r.spec_hash)
        )


class Provisioner(Protocol):
    """Turns specs into running things.

    `apply` creates what is missing, removes what is too many (highest index first) and replaces
    outdated replicas one at a time: a call replaces at most one; one that serves only while
    every other wanted replica serves too, one that surely does not at any time. The caller calls
    again until `observe` shows the wanted hash everywhere. A replica keeps its index, and with
    it its ports, when it is replaced. `observe` and `apply` may finish what an earlier call has
    begun. All verbs raise `TemporaryError` or `PermanentError`, nothing else.

    A provisioner which `rolls` hands replacing over to its platform: new replicas come up beside
    the old ones, old ones go when new ones are ready, never fewer ready ones than wanted; names
    and addresses change, and an index is only an order. The caller then plans no replacing.
    """

    name: str
    rolls: bool

    def apply(self, spec: WorkloadSpec) -> Ref: ...

    def observe(self, ref: Ref) -> Observation: ...

    def delete(self, ref: Ref) -> None:
        """Ask for the end of it; gone when `observe` says `exists=False`."""
        ...

    def logs(self, ref: Ref, tail_lines: int = 200) -> Mapping[str, str]:
        """Last lines of each replica's log, by replica name."""
        ...


@runtime_checkable
class RollingProvisioner(Provisioner, Protocol):
    """What one which `rolls` can do besides; every verb idempotent and, but for `follow`, short."""

    def heal(self, ref: Ref) -> None:
        """Make every field that drifted as it is wanted, whoever else has set it."""
        ...

    def adopt(self, ref: Ref, paths: tuple[str, ...]) -> None:
        """Leave these fields (`Drift.key`) to whoever set them, from now on."""
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
        """Lines of one container from `since` on (epoch seconds; 0: the last `tail`), as they come,
        each led by its time (RFC 3339) and a space. Ends when the container does, when the
        iterator is closed, or (not `stay`) with what there is now."""
        ...
