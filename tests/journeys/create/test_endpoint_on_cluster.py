"""An endpoint's whole lifecycle on a cluster, by REST: workers (simulated) and routers run.

Everything is as in production but the kubelet: the console's passes are made one after another,
pods are processes with addresses of their own, and the request which proves it is a real one. Over
the fake the same pods are tried without a console (test_router_pods), and the same console without
pods that run (test_cluster_sources.py): together they would take a minute more.
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from rest_framework.test import APIClient

from cachetier import reconciler as tier_reconciler
from cachetier.models import CacheTier
from console.accounts.models import User
from console.clusters import actions as clusters
from console.provisioners.kubernetes.api.access import KUBECONFIG
from endpoints import selectors
from endpoints.models import Endpoint, EndpointStatus
from endpoints.reconcile.reconciler import Reconciler
from tests.support.kube.cluster import Cluster
from tests.support.kube.running import can_run
from tests.support.waiting import until

pytestmark = [pytest.mark.kubernetes, pytest.mark.django_db, pytest.mark.timeout(400)]
URL = "/api/v1/endpoints/"
WANTED = {
    "name": "demo",
    "model": "smollm2-135m-instruct",
    "engine": "simulated",
    "replicas": 2,
    "placement": {"cluster": "lab"},
    "rollout": {"drain_s": 2},
}
LONG_S = 120


class Console:
    """The console, as a program and its Celery see it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.space = cluster.namespace(**cluster.restricted)
        cluster.rule(self.space, behaviour="run")
        text = cluster.kubeconfig.read_text()
        facts = {"kind": KUBECONFIG, "kubeconfig": text, "namespace": self.space}
        clusters.add_cluster(None, "lab", facts)
        self.api = APIClient()
        self.api.force_authenticate(User.objects.create_user("olga", "x", role="operator"))

    def until(self, phase: str) -> EndpointStatus:
        """Passes until the endpoint's present generation is there."""
        seen: list[str] = []

        def there() -> EndpointStatus | None:
            endpoint = Endpoint.objects.get()
            Reconciler.configured().reconcile(str(endpoint.pk))
            status = EndpointStatus.objects.get()
            text = f"{status.phase}/{status.reason}: {status.message}"
            seen.extend([text] if seen[-1:] != [text] else [])
            current = status.observed_generation == endpoint.generation
            served = status.served_generation == endpoint.generation or phase == "Paused"
            return status if status.phase == phase and current and served else None

        try:
            return until(there, LONG_S)
        except AssertionError as error:
            raise AssertionError(f"not {phase}: {seen[-8:]}") from error

    def pods(self, workload: str) -> set[str]:
        found = self.cluster.pods(self.space, f"emberline.dev/workload={workload}")
        return {
            pod["metadata"]["name"] for pod in found if "deletionTimestamp" not in pod["metadata"]
        }

    def patch(self, **changes: Any) -> Any:
        answer = self.api.patch(f"{URL}demo/", changes, format="json")
        assert answer.status_code == 200, answer.json()
        return answer.json()


@pytest.fixture
def console(real_cluster: Cluster) -> Console:
    why = can_run()
    if why:
        pytest.skip(f"NOT TESTED with real pods: {why}")
    return Console(real_cluster)


def ask(endpoint: Endpoint) -> httpx.Response:
    body = {"model": "demo", "prompt": "one two three", "max_tokens": 2}
    headers = {"authorization": f"Bearer {selectors.console_key(endpoint)}"}
    url = f"{selectors.ask_url(endpoint)}/v1/completions"
    return httpx.post(url, json=body, headers=headers, timeout=120)


def test_from_a_rest_call_to_ready_through_every_change_to_nothing_left(console: Console) -> None:
    answer = console.api.post(URL, WANTED, format="json")
    assert answer.status_code in (201, 202), answer.json()
    status = console.until("Ready")
    endpoint = Endpoint.objects.select_related("status").get()
    assert status.ready_replicas == 2
    assert status.url == f"http://demo-router.{console.space}.svc:8080"
    served = ask(endpoint)
    assert served.status_code == 200, served.text
    assert served.headers["x-emberline-worker"] in console.pods("demo-worker")
    workers, routers = console.pods("demo-worker"), console.pods("demo-router")
    assert (len(workers), len(routers)) == (2, 2)

    console.patch(routing={"strategy": "session"})  # live: no pod is replaced
    console.until("Ready")
    assert (console.pods("demo-worker"), console.pods("demo-router")) == (workers, routers)
    console.patch(replicas=3)
    console.until("Ready")
    assert workers < console.pods("demo-worker")

    console.patch(cache={"l1": {"size_gib": 0.25}})  # restarts workers, beside the old ones
    console.until("Ready")
    assert not workers & console.pods("demo-worker")
    assert console.pods("demo-router") == routers
    assert ask(endpoint).status_code == 200

    assert console.api.delete(f"{URL}demo/").status_code in (202, 204)
    until(lambda: _gone(), LONG_S)
    ours = "app.kubernetes.io/managed-by=emberline"
    for kind in ("Pod", "Deployment", "Secret", "ConfigMap", "Service", "RoleBinding"):
        assert console.cluster.api.list(kind, console.space, ours) == []


def _gone() -> bool:
    for endpoint in Endpoint.objects.all():
        Reconciler.configured().reconcile(str(endpoint.pk))
    return not Endpoint.objects.exists()


def test_cache_nodes_run_in_pods_and_are_queried_by_the_console(console: Console) -> None:
    wanted = {"name": "chat", "cluster": "lab", "memory_bytes": 2**27, "disk_bytes": 2**28}
    made = console.api.post("/api/v1/cache-tiers/", wanted, format="json")
    assert made.status_code == 201, made.json()
    tier = CacheTier.objects.get()

    def ready() -> CacheTier | None:
        tier_reconciler.reconcile(str(tier.pk))
        found = CacheTier.objects.select_related("status").get()
        (node,) = found.nodes.all() if found.nodes.count() == 1 else (None,)
        value = node is not None and node.stats.get("capacity_bytes")
        return found if found.status.phase == "Ready" and value else None

    found = until(ready, LONG_S)
    (node,) = found.nodes.all()
    assert node.stats["capacity_bytes"] == 2**27
    assert node.stats["disk_capacity_bytes"]
