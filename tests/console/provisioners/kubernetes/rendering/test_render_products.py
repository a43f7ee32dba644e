"""Real workers, routers and cache nodes pass strict API validation and restricted pod security."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cachetier.tier.node_spec import node_spec
from cachetier.tier.node_spec import to_pods as cache_pods
from console.provisioners.base import WorkloadSpec
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import Secrets
from tests.cachetier.tier.test_node_spec import ON_CLUSTER
from tests.console.provisioners.kubernetes.rendering.matrix import TARGET
from tests.console.provisioners.kubernetes.rendering.strict import taken
from tests.endpoints.router.test_workload import EXPOSED, on_cluster, pods
from tests.endpoints.workload.test_worker_pod import CASES, made
from tests.support.endpoints.fixtures import data
from tests.support.kube.cluster import Cluster

__all__ = ["data"]

EXPOSURES: dict[str, dict[str, Any]] = {
    "alone": {},
    "ingress": EXPOSED,
    "load balancer": {"exposure.kind": "loadbalancer", "exposure.host": "llm.example.com"},
    "gateway": {"exposure.kind": "gateway", "exposure.gateway": "edge/public"},
    "many": {"router.max_replicas": 6, "tags": {"team": "search"}},
}


def everything(data: dict[str, Any]) -> dict[str, Callable[[], WorkloadSpec]]:
    workers = {
        f"worker {name}": lambda case=case: made(data, *case) for name, case in CASES.items()
    }
    routers = {
        f"router {name}": lambda changes=changes: pods(on_cluster(**changes))
        for name, changes in EXPOSURES.items()
    }
    cache = {"cache": lambda: cache_pods(node_spec(ON_CLUSTER), ON_CLUSTER, "engine:1")}
    return {**workers, **routers, **cache}


NAMES = [*(f"worker {name}" for name in CASES), *(f"router {name}" for name in EXPOSURES), "cache"]


@pytest.mark.parametrize("name", NAMES)
def test_product_workload_is_accepted(cluster: Cluster, data: dict[str, Any], name: str) -> None:
    space = cluster.namespace(**cluster.restricted)
    spec = everything(data)[name]()
    secrets = Secrets(
        env=dict.fromkeys(spec.secret_env, "x"), files=dict.fromkeys(spec.secret_files, "x")
    )
    objects = render(spec, replace(TARGET, namespace=space), secrets)
    assert {one["kind"] for one in objects} >= {"NetworkPolicy", "PodDisruptionBudget", "Service"}
    taken(cluster, space, objects)
