"""Routers and workers as pods: real processes, found through the EndpointSlices of an API server.

Everything is what the console would make of an endpoint: its workloads, compiled and rendered, and
applied by the provisioner. Only images are not pulled, and no node has a GPU.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from cachetier.tier import node_spec
from cachetier.tier.spec import MIB, TierSpec
from console.provisioners.base import Ref, ReplicaObservation
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.provisioner import KubernetesProvisioner
from endpoints.keys.terms import KeyFacts
from endpoints.lifecycle.components import EndpointFacts
from endpoints.router.compiler import compile_config, compile_keys
from endpoints.router.workload import router_spec, to_pods
from endpoints.spec.endpoint_spec import merge, parse
from endpoints.workload.worker_spec import Installation, L2Access, worker_spec
from tests.support.kube.cluster import Cluster
from tests.support.kube.running import can_run
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)

KEY = "ek-a-key-of-this-test"
HEADERS = {"authorization": f"Bearer {KEY}"}
BODY = {"model": "demo", "prompt": "one two three", "max_tokens": 1}
IN_PODS = Installation("python3", "python3", "", "", "", "worker:1", "engine:1")


class Endpoint:
    """One endpoint on a cluster, without a console."""

    def __init__(self, cluster: Cluster, password: Path) -> None:
        self.cluster = cluster
        self.space = cluster.namespace(**cluster.restricted)
        cluster.rule(self.space, behaviour="run")
        access = ClusterAccess(KUBECONFIG, cluster.kubeconfig.read_text())
        self.provisioner = KubernetesProvisioner(access, self.space, frozenset())
        changes = {"placement.cluster": "prod", "engine": "simulated", "replicas": 2}
        spec = parse(merge({"name": "demo", "model": "m", "rollout": {"drain_s": 5}}, changes))
        key = KeyFacts("k", hashlib.sha256(KEY.encode()).hexdigest())
        self.facts = EndpointFacts("1", "demo", "ns", spec, 1, (key,), "", self.space)
        self.tier = node_spec.NodeFacts(
            "t", TierSpec(memory_bytes=64 * MIB, node_count=2), password
        )
        self.nodes = self.workers = self.routers = Ref("", "")

    def start(self) -> None:
        nodes = node_spec.to_pods(node_spec.node_spec(self.tier), self.tier, "engine:1")
        self.nodes = self.provisioner.apply(nodes)
        url = node_spec.nodes_url(self.tier, self.space)
        access = L2Access(url, str(self.tier.password_file))
        self.workers = self.provisioner.apply(worker_spec(self.facts.spec, IN_PODS, access))
        compiled = compile_config(self.facts, ()), compile_keys(self.facts)
        router = to_pods(router_spec("demo", *compiled), self.facts, "engine:1")
        self.routers = self.provisioner.apply(router)
        for ref in (self.nodes, self.workers, self.routers):
            until(lambda ref=ref: len(self.ready(ref)) == 2, 90, f"{ref.name} ready")

    def ready(self, ref: Ref) -> tuple[ReplicaObservation, ...]:
        return self.provisioner.observe(ref).ready()

    def known(self) -> list[dict[str, str]]:
        """By each router: its workers and how they stand."""
        found = []
        for router in self.ready(self.routers):
            answer = httpx.get(f"{router.urls['admin']}/workers", timeout=60).json()
            found.append({worker["id"]: worker["state"] for worker in answer["workers"]})
        return found


@contextmanager
def continuous_requests(urls: list[str]) -> Iterator[list[int]]:
    """What callers see meanwhile: the status of every answer."""
    stop, seen = threading.Event(), []

    def ask() -> None:
        with httpx.Client(timeout=120, headers=HEADERS) as client:
            while not stop.is_set():
                answers = [client.post(f"{url}/v1/completions", json=BODY) for url in urls]
                seen.extend(answer.status_code for answer in answers)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)


@pytest.fixture(scope="module", params=["fake", pytest.param("real", marks=pytest.mark.kubernetes)])
def endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    why = can_run()
    if why:
        pytest.skip(f"NOT TESTED with real pods: {why}")
    cluster = Cluster(request.param, request.getfixturevalue(f"{request.param}_plane"))
    password = tmp_path_factory.mktemp("tier") / "password"
    password.write_text("of-this-tier")
    try:
        endpoint = Endpoint(cluster, password)
        endpoint.start()
        yield endpoint
    finally:
        cluster.close()


def test_routers_discover_workers_drop_terminating_ones_and_read_their_files(
    endpoint: Endpoint,
) -> None:
    """Two routers, two workers; one worker is deleted under load: no request fails, and the
    routers have turned away before the pod has ended. Then the key of the callers is revoked."""
    one, two = endpoint.ready(endpoint.workers)
    both = {one.name: "up", two.name: "up"}
    until(lambda: endpoint.known() == [both, both], 60)
    urls = [router.urls["http"] for router in endpoint.ready(endpoint.routers)]
    assert httpx.post(f"{urls[0]}/v1/completions", json=BODY).status_code == 401
    with continuous_requests(urls) as seen:
        until(lambda: len(seen) > 20)
        endpoint.cluster.api.delete("Pod", endpoint.space, one.name)
        until(lambda: _turned_away(endpoint, one.name), 15)
        # It still answers requests: running ones may end there.
        assert httpx.get(f"{one.urls['http']}/health", timeout=60).status_code == 200
        until(lambda: _gone(endpoint, one.name), 60)
        until(lambda: len(endpoint.ready(endpoint.workers)) == 2, 60)
        until(lambda: [len(known) for known in endpoint.known()] == [2, 2], 60)
    assert set(seen) == {200}
    _revoke(endpoint, urls)


def _revoke(endpoint: Endpoint, urls: list[str]) -> None:
    """No pod is replaced for it."""
    before = _uids(endpoint)
    facts = replace(endpoint.facts, keys=())
    compiled = compile_config(facts, ()), compile_keys(facts)
    endpoint.provisioner.apply(to_pods(router_spec("demo", *compiled), facts, "engine:1"))
    for url in urls:
        until(lambda url=url: _status(url) == 401, 60, "a revoked key is refused")
    assert _uids(endpoint) == before


def _status(url: str) -> int:
    answer = httpx.post(f"{url}/v1/completions", json=BODY, headers=HEADERS, timeout=60)
    return answer.status_code


def _uids(endpoint: Endpoint) -> set[str]:
    return {pod["metadata"]["uid"] for pod in endpoint.cluster.pods(endpoint.space)}


def _turned_away(endpoint: Endpoint, name: str) -> bool:
    return all(known.get(name, "gone") in ("draining", "gone") for known in endpoint.known())


def _gone(endpoint: Endpoint, name: str) -> bool:
    return endpoint.cluster.api.find("Pod", endpoint.space, name) is None


def test_prefix_computed_by_one_worker_is_loaded_by_another_from_the_tier(
    endpoint: Endpoint,
) -> None:
    """Two cache nodes by the name of their Service, two workers: values cross over as on a
    cluster, with the tier's password from a Secret."""
    until(lambda: len(endpoint.ready(endpoint.workers)) == 2, 60, "workers ready")
    one, two = (worker.urls["http"] for worker in endpoint.ready(endpoint.workers))
    fresh = itertools.count()

    def crosses() -> bool:
        """A new prompt: a hit at the other worker can only come from the tier."""
        prompt = [next(fresh) * 7 + at for at in range(2000)]
        return _cached(one, prompt) == 0 and _cached(two, prompt) > 0

    until(crosses, 60, "a hit of what the other computed")


def _cached(url: str, prompt: list[int]) -> int:
    body = {"model": "demo", "prompt": prompt, "max_tokens": 1}
    usage = httpx.post(f"{url}/v1/completions", json=body, timeout=120).json()["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])
