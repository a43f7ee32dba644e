"""Run workloads as pods in one namespace of a Kubernetes cluster.

Each verb makes a few short requests with deadlines; none waits for a pod. Objects are applied
server-side. It `rolls`: the cluster starts new pods beside the old ones. Crash safety of each
verb is described in `apply`, `removal` and `observation`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from console.provisioners.base import (
    ClusterEvent,
    Drift,
    Observation,
    PermanentError,
    Ref,
    WorkloadSpec,
)
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.access import ClusterAccess
from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.discovery.survey import discover
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets
from console.provisioners.kubernetes.workload import anchor_record, logs, removal, watch
from console.provisioners.kubernetes.workload import observation as observe
from console.provisioners.kubernetes.workload.anchor_record import AnchorRecord
from console.provisioners.kubernetes.workload.apply import apply, desired_objects
from console.provisioners.kubernetes.workload.observation_cache import MEMORY, RecentObservation
from console.provisioners.specs import check_ref, check_spec, read_secrets

_DISCOVERED_FOR_S = 300.0


class KubernetesProvisioner:
    name = "kubernetes"
    rolls = True

    def __init__(
        self, access: ClusterAccess, namespace: str, capabilities: frozenset[str] | None = None
    ) -> None:
        """`capabilities` as last discovered; None: discover and cache them."""
        self._access = access
        self._known = capabilities
        self._client = KubernetesClient(access, namespace)

    @property
    def announces(self) -> bool:
        return watch.is_watched(self._client.server, self._client.namespace)

    def apply(self, spec: WorkloadSpec) -> Ref:
        check_spec(spec)
        env = read_secrets(spec.secret_env, spec.secrets_within)
        secrets = Secrets(env, read_secrets(spec.secret_files))
        target = RenderingTarget(self._client.namespace, self._capabilities())
        apply(self._client, desired_objects(spec, target, secrets), self._seen(spec.name))
        return Ref(self.name, spec.name)

    def observe(self, ref: Ref) -> Observation:
        check_ref(ref, self.name)
        possible = kinds.possible_kinds(self._capabilities())
        observation = observe.observe(self._client, ref.name, possible, self._seen(ref.name))
        if not observation.exists:
            MEMORY.forget(self._key(ref.name))
        return observation

    def delete(self, ref: Ref) -> None:
        check_ref(ref, self.name)
        removal.delete(self._client, ref.name, kinds.possible_kinds(self._capabilities()))
        MEMORY.forget(self._key(ref.name))

    def logs(self, ref: Ref, tail_lines: int = 200) -> Mapping[str, str]:
        check_ref(ref, self.name)
        return logs.last_lines(self._client, ref.name, tail_lines)

    def drift(self, ref: Ref) -> tuple[Drift, ...]:
        """Return the current drift, not the cached one."""
        record = self._kept(ref)
        if record is None:
            return ()
        observed = self._seen(ref.name)
        observed.drift, observed.settled = (
            observe.find_all_drift(self._client, record, ref.name),
            None,
        )
        return observed.drift

    def heal(self, ref: Ref) -> None:
        """Make the next apply restore every drifted field."""
        record = self._kept(ref)
        if record is not None:
            self._client.apply(anchor_record.with_decision(record, force=True), force=True)
            self._seen(ref.name).settled = None

    def adopt(self, ref: Ref, paths: tuple[str, ...]) -> None:
        """Release these fields from the next apply on."""
        record = self._kept(ref)
        if record is None:
            raise PermanentError("NothingThere", f"Workload {ref.name!r} does not exist.")
        changed = anchor_record.with_decision(record, left=record.left | frozenset(paths))
        self._client.apply(changed, force=True)
        MEMORY.forget(self._key(ref.name))

    def events(self, ref: Ref) -> tuple[ClusterEvent, ...]:
        """Return events, also of a healthy workload."""
        record = self._kept(ref)
        return observe.recent_events(self._client, ref.name, record) if record else ()

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
        check_ref(ref, self.name)
        begin = logs.LogPosition(since, tail, stay)
        return logs.follow(self._client, ref.name, replica, container, begin)

    def _kept(self, ref: Ref) -> AnchorRecord | None:
        check_ref(ref, self.name)
        config_map = self._client.get(kinds.CONFIG_MAP, ref.name)
        if config_map is None or not removal.is_owned(config_map, ref.name):
            return None
        return anchor_record.read_record(config_map)

    def _capabilities(self) -> frozenset[str]:
        if self._known is not None:
            return self._known
        key = (self._client.server, "capabilities")
        capabilities: frozenset[str] = MEMORY.cached(
            key, _DISCOVERED_FOR_S, lambda: discover(self._access).capabilities
        )
        return capabilities

    def _seen(self, name: str) -> RecentObservation:
        return MEMORY.of(self._key(name))

    def _key(self, name: str) -> tuple[str, str, str]:
        return self._client.server, self._client.namespace, name
