"""Kubernetes provisioner on a test cluster, with workloads that a test can break."""

from __future__ import annotations

import dataclasses
from typing import Any

from console.provisioners.base import FileSpec, Probe, Ref, WorkloadSpec
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.provisioner import KubernetesProvisioner
from console.provisioners.pods import Pod
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

CAPABILITIES = frozenset({"keda", "cert-manager", "gateway-api", "prometheus-operator"})
PORTS = {"http": 8000, "news": 5001, "old-news": 5002}


class KubeRig:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespace = cluster.namespace(**cluster.restricted)
        self.provisioner = self.another()

    def spec(self, name: str, replicas: int, revision: str = "1") -> WorkloadSpec:
        return WorkloadSpec(
            owner="endpoint/demo",
            name=name,
            role="worker",
            argv=("serve", "--listen", "{host}:{port:http}"),
            ports=("http",),
            probe=Probe("/health", "http", timeout_s=5.0),
            replicas=replicas,
            env={"REVISION": revision},
            files=(FileSpec("conf/worker.json", '{"port": {port:http}, "x": {}}'),),
            stop_grace_s=1,
            image="registry.example/worker:1",
            pod=Pod(ports=PORTS, drain_s=0, startup_s=30),
        )

    def podded(self, spec: WorkloadSpec, **pod: Any) -> WorkloadSpec:
        assert spec.pod is not None
        return dataclasses.replace(spec, pod=dataclasses.replace(spec.pod, **pod))

    def access(self, user: str = "") -> ClusterAccess:
        path = self.cluster.kubeconfig
        if user:
            path = self.cluster.plane.kubeconfig_of(user, self.namespace)
        return ClusterAccess(KUBECONFIG, path.read_text(encoding="utf-8"))

    def another(self, user: str = "") -> KubernetesProvisioner:
        return KubernetesProvisioner(self.access(user), self.namespace, CAPABILITIES)

    def crash(self, ref: Ref, index: int) -> None:
        """Crash once; the replica then runs again."""
        pod = self.provisioner.observe(ref).replicas[index].name
        self.annotate(pod, "crash-loop")
        until(lambda: self._deaths(pod), what=f"{pod} died")
        self.annotate(pod, "ready")

    def annotate(self, pod: str, behaviour: str) -> None:
        note = {"metadata": {"annotations": {"kubelet-player": behaviour}}}
        self.cluster.api.merge("Pod", self.namespace, pod, note)

    def get(self, kind: str, name: str) -> Any:
        return self.cluster.api.find(kind, self.namespace, name)

    def _deaths(self, pod: str) -> int:
        statuses = self.get("Pod", pod)["status"].get("containerStatuses") or [{}]
        return int(statuses[0].get("restartCount") or 0)
