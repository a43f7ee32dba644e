"""Endpoints on a test cluster, with real components except what needs a running pod.

Requests for credentials, objects, pods and logs go to the cluster's API server. Router pods are
real; the router's own status and replies to a proof are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings

from console.clusters import actions as clusters
from console.clusters.refresh import refresh
from console.provisioners.base import ReplicaObservation
from console.provisioners.kubernetes.api.client import KubernetesClient
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.lifecycle.components import ComponentStatus, EndpointFacts, WorkerFacts
from endpoints.models import Endpoint, EndpointStatus
from endpoints.placement.provisioner import provisioner_of
from endpoints.reconcile.reconciler import Reconciler
from endpoints.router.component import RouterComponent, RouterRequirements
from tests.support.endpoints.reconciler_harness import age
from tests.support.kube.cluster import Cluster, ready
from tests.support.waiting import until

LABEL = "emberline.dev/workload"


class Killed(BaseException):
    """Simulates SIGKILL: no handler catches it."""


class Routers(RouterComponent):
    """Real pods with simulated router status."""

    def _judge(
        self,
        wanted: RouterRequirements,
        replica: ReplicaObservation,
        endpoint: EndpointFacts,
        workers: tuple[WorkerFacts, ...],
    ) -> ComponentStatus:
        process = {"started_at": replica.started_at, "restarts": replica.restarts}
        return ComponentStatus(True, "", "", replica.urls["http"], replica.urls["admin"], process)


class ClusterHarness:
    def __init__(self, cluster: Cluster, patch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        self.namespace = cluster.namespace(**cluster.restricted)
        self.proof_error = ""
        images = {"worker_image": "registry.example/worker:1", "engine_image": "engine:1"}
        patch.setattr(settings, "EMBERLINE", replace(settings.EMBERLINE, **images))
        text = cluster.kubeconfig.read_text(encoding="utf-8")
        facts = {"kind": "kubeconfig", "kubeconfig": text, "namespace": self.namespace}
        refresh(str(clusters.add_cluster(None, "east", facts).pk))
        routers = Routers(lambda facts: provisioner_of(facts.spec), lambda: "engine:1")
        self.reconciler = Reconciler(provisioner_of, routers, lambda *_: self.proof_error)
        self.seen: list[str] = []

    def create(self, data: dict[str, Any], **more: Any) -> Endpoint:
        spec = {**data, "placement": {"cluster": "east"}, **more}
        return actions.create(SYSTEM, spec)

    def step(self, endpoint: Endpoint) -> EndpointStatus | None:
        self.reconciler.reconcile(str(endpoint.pk))
        status = EndpointStatus.objects.filter(pk=endpoint.pk).first()
        if status is not None:
            self.seen.append(f"{status.phase}/{status.reason}")
        return status

    def until(self, endpoint: Endpoint, phase: str, reason: str = "") -> EndpointStatus:
        """Run passes until the current generation reaches the phase."""

        def reached() -> EndpointStatus | None:
            status = self.step(endpoint)
            assert status is not None, "it is gone"
            generation = Endpoint.objects.get(pk=endpoint.pk).generation
            current = status.observed_generation == generation
            there = status.phase == phase and reason in ("", status.reason)
            return status if there and current else None

        try:
            return until(reached, what=phase)
        except AssertionError as error:
            status = EndpointStatus.objects.get(pk=endpoint.pk)
            raise AssertionError(f"{error}\n{self.seen[-8:]}\n{status.message}") from error

    def gone(self, endpoint: Endpoint) -> None:
        until(lambda: self.step(endpoint) is None, what="gone")

    def survivor(self, endpoint: Endpoint) -> None:
        """Expire the claim of a killed process."""
        age(EndpointStatus.objects.get(pk=endpoint.pk), claim_until=1, due_at=1)

    @contextmanager
    def killing(self, patch: pytest.MonkeyPatch, at: int, *, answered: bool) -> Iterator[list[int]]:
        """Raise `Killed` at request number `at`, before it is sent or after it was executed."""
        count = [0]
        send = KubernetesClient._send

        def dying(client: KubernetesClient, *args: Any, **named: Any) -> Any:
            mine = count[0]
            count[0] += 1
            if mine == at and not answered:
                raise Killed
            found = send(client, *args, **named)
            if mine == at:
                raise Killed
            return found

        with patch.context() as patched:
            patched.setattr(KubernetesClient, "_send", dying)
            yield count

    # ---- cluster contents

    def pods(self, workload: str = "demo-worker") -> list[dict[str, Any]]:
        found = self.cluster.pods(self.namespace, f"{LABEL}={workload}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def ready(self, workload: str = "demo-worker") -> int:
        return sum(ready(pod) for pod in self.pods(workload))

    def left(self) -> list[str]:
        """Return every remaining object of ours."""
        kinds = (
            "ConfigMap Secret Service ServiceAccount Deployment StatefulSet ReplicaSet Pod Role "
            "RoleBinding NetworkPolicy PodDisruptionBudget HorizontalPodAutoscaler Ingress "
            "PersistentVolumeClaim ScaledObject HTTPRoute Certificate PodMonitor PrometheusRule"
        )
        return [
            f"{kind}/{item['metadata']['name']}"
            for kind in kinds.split()
            for item in self.cluster.api.list(kind, self.namespace)
            if LABEL in (item["metadata"].get("labels") or {})
        ]
