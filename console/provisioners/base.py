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
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Protocol


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
    """A file placed in the replica's folder before it starts, mode 0600."""

    path: str
    content: str


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
    sees to that.
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

    @property
    def spec_hash(self) -> str:
        """Sixteen hex digits over all that needs a restart when it changes."""
        facts = asdict_plain(self)
        for live in ("live_files", "replicas", "memory_bytes"):
            facts.pop(live)
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def asdict_plain(spec: WorkloadSpec) -> dict[str, object]:
    """The spec as JSON-ready values (mapping proxies become dicts)."""
    facts: dict[str, object] = {}
    for name in spec.__dataclass_fields__:
        value = getattr(spec, name)
        if isinstance(value, Mapping):
            value = dict(value)
        elif isinstance(value, tuple):
            value = [asdict(item) if isinstance(item, FileSpec) else item for item in value]
        elif isinstance(value, Probe):
            value = asdict(value)
        facts[name] = value
    return facts


@dataclass(frozen=True, slots=True)
class Ref:
    """Where an applied workload is found again: equal for every `apply` of the same name."""

    provisioner: str
    name: str


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
    replica was created."""

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


@dataclass(frozen=True, slots=True)
class Observation:
    """What runs under a Ref. `exists` is False when nothing of it is left."""

    exists: bool
    replicas: tuple[ReplicaObservation, ...] = ()
    message: str = ""

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
    """

    name: str

    def apply(self, spec: WorkloadSpec) -> Ref: ...

    def observe(self, ref: Ref) -> Observation: ...

    def delete(self, ref: Ref) -> None:
        """Ask for the end of it; gone when `observe` says `exists=False`."""
        ...

    def logs(self, ref: Ref, tail_lines: int = 200) -> Mapping[str, str]:
        """Last lines of each replica's log, by replica name."""
        ...
