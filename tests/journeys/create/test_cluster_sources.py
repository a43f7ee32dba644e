"""Endpoints on a cluster, from the user's spec to pods: over a fake and a real API server.

Pods here become ready by themselves and run nothing, so a router never answers; those which really
run are in test_product_simulated.
"""

from __future__ import annotations

from typing import Any

import pytest

from cachetier import reconciler as tier_reconciler
from cachetier.models import CacheTier
from console.clusters import actions as clusters
from console.provisioners.kubernetes.api.access import KUBECONFIG
from console.provisioners.kubernetes.api.capabilities import CAPABILITIES
from console.provisioners.kubernetes.provisioner import KubernetesProvisioner
from endpoints import actions, selectors
from endpoints.actions import SYSTEM
from endpoints.models import Endpoint, EndpointStatus
from endpoints.reconcile.reconciler import Reconciler
from endpoints.spec.endpoint_spec import merge
from tests.endpoints.workload.test_worker_pod import FSX, HF, OWN, PVC, S3
from tests.support.endpoints.fixtures import data, known_machine, no_old_keys  # noqa: F401
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
REDIS = {
    "cache.l2.enabled": True,
    "cache.l2.backend": "redis",
    "cache.l2.url": "redis://127.0.0.1:1",
}
CASES: dict[str, dict[str, Any]] = {
    "simulated": {"engine": "simulated"},
    "hub": {"model": "org/big", "resources.gpus": 1},
    "huggingface": {"model": "org/big", **HF},
    "s3_prefetch": {**S3, "source.prefetch": True, "source.location": "a/b"},
    "fsx": FSX,
    "pvc_own_image_redis": {**PVC, **OWN, **REDIS},
    "exposed": {
        "engine": "simulated",
        "exposure.kind": "ingress",
        "exposure.host": "llm.example.com",
        "exposure.tls": "cert-manager",
        "exposure.issuer": "ClusterIssuer/main",
        "router.max_replicas": 4,
        "routing.strategy": "kvaware",
    },
}


@pytest.fixture
def place(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> tuple[Cluster, str]:
    """The cluster "lab" of the console, in a restricted namespace of its own; it takes objects for
    drivers and controllers which are not there."""
    monkeypatch.setattr(KubernetesProvisioner, "_capabilities", lambda _: frozenset(CAPABILITIES))
    space = cluster.namespace(**cluster.restricted)
    facts = {"kind": KUBECONFIG, "kubeconfig": cluster.kubeconfig.read_text(), "namespace": space}
    clusters.add_cluster(None, "lab", facts)
    return cluster, space


def passes(endpoint: Endpoint) -> EndpointStatus:
    Reconciler.configured().reconcile(str(endpoint.pk))
    return EndpointStatus.objects.get(pk=endpoint.pk)


def _claim(cluster: Cluster, space: str, name: str) -> None:
    """What a user has made for a model."""
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"metadata": {"name": name}, "spec": {**wanted, "storageClassName": "standard"}}
    cluster.api.create("PersistentVolumeClaim", space, body)


def create(data: dict[str, Any], changes: dict[str, Any]) -> Endpoint:
    return actions.create(
        SYSTEM, merge(data, {"engine": "vllm", "placement.cluster": "lab", **changes})
    )


@pytest.mark.parametrize("name", CASES)
def test_every_worker_becomes_a_ready_pod_and_nothing_is_left_at_the_end(
    data: dict[str, Any], place: tuple[Cluster, str], name: str
) -> None:
    cluster, space = place
    _claim(cluster, space, "weights")
    endpoint = create(data, CASES[name])
    status = until(lambda: _standing(passes(endpoint)))
    assert status.ready_replicas == 2
    pods = cluster.pods(space, f"emberline.dev/workload={endpoint.name}-worker")
    assert {pod["metadata"]["name"] for pod in pods} == {
        row.name for row in selectors.workers(endpoint)
    }
    actions.delete(SYSTEM, endpoint.name)
    until(lambda: _gone(endpoint))
    ours = "app.kubernetes.io/managed-by=emberline"
    for kind in ("Deployment", "Pod", "Secret", "ConfigMap", "Service", "Role", "ServiceAccount"):
        assert cluster.api.list(kind, space, ours) == []
    volumes = cluster.api.list("PersistentVolume", "", ours)
    assert not [one for one in volumes if one["metadata"]["name"].startswith(f"{space}-")]


def _standing(status: EndpointStatus) -> EndpointStatus | None:
    """Workers all there, and routers which only do not answer."""
    text = (status.phase, status.reason, status.message, status.parts)
    assert status.phase != "Failed", text
    router = status.parts.get("router", {})
    there = status.ready_replicas == 2 and router.get("reason") == "PodsUnreachable"
    return status if there else None


def _gone(endpoint: Endpoint) -> bool:
    Reconciler.configured().reconcile(str(endpoint.pk))
    return not Endpoint.objects.filter(pk=endpoint.pk).exists()


def test_a_tier_on_the_cluster_is_named_to_workers_there(
    data: dict[str, Any], place: tuple[Cluster, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cachetier import actions as tiers
    from console.accounts.models import User

    cluster, space = place
    olga = User.objects.create_user("olga", password="x", role="operator")
    sizes = {"cluster": "lab", "disk_bytes": 2**30, "node_count": 2}
    tier = tiers.create(olga, "chat", sizes)

    def ready() -> CacheTier | None:
        tier_reconciler.reconcile(str(tier.pk))
        found = CacheTier.objects.select_related("status").get(pk=tier.pk)
        return found if found.status.phase == "Ready" else None

    found = until(ready)
    assert found.status.url == f"redis://cache-chat-pods.{space}.svc:6400?nodes=dns"
    assert {node.name for node in found.nodes.all()} == {"cache-chat-0", "cache-chat-1"}
    claims = cluster.api.list("PersistentVolumeClaim", space)
    assert len(claims) == 2
    l2 = {"cache.l2.enabled": True, "cache.l2.tier": "chat", "engine": "simulated"}
    endpoint = create(data, l2)
    until(lambda: _standing(passes(endpoint)))
    (pod, *_) = cluster.pods(space, "emberline.dev/workload=demo-worker")
    main = pod["spec"]["containers"][0]
    assert found.status.url in main["command"]
    assert "EMBERLINE_L2_PASSWORD" in {entry["name"] for entry in main["env"]}
