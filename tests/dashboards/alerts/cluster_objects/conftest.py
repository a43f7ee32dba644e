"""Cluster with alert objects, on the fake and a real API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from console.clusters import actions as clusters
from dashboards.alerts.cluster_objects import actions, reconciler, selectors
from tests.support.console import person
from tests.support.kube.cluster import Cluster

RULES, CONFIG = "emberline-alert-rules", "emberline-receivers"


@dataclass(frozen=True)
class Kept:
    """Cluster `prod` and a namespace in it."""

    cluster: Cluster
    space: str

    def set(self, **facts: Any) -> selectors.ClusterAlertsSummary:
        actions.change(person("admin"), "prod", facts)
        return self.keep()

    def keep(self) -> selectors.ClusterAlertsSummary:
        """Run one pass regardless of schedule."""
        reconciler.reconcile(str(selectors.one("prod").cluster.pk))
        return selectors.one("prod")

    def find(self, kind: str, name: str) -> Any:
        return self.cluster.api.find(kind, self.space, name)

    def alerts(self) -> dict[str, dict[str, Any]]:
        groups = self.find("PrometheusRule", RULES)["spec"]["groups"]
        return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def joined(cluster: Cluster, user: str = "") -> Kept:
    space = cluster.namespace()
    path = cluster.plane.kubeconfig_of(user, space) if user else cluster.kubeconfig
    config = path.read_text(encoding="utf-8")
    facts = {"kind": "kubeconfig", "kubeconfig": config, "namespace": space}
    clusters.add_cluster(person("admin"), "prod", facts)
    return Kept(cluster, space)


@pytest.fixture
def kept(cluster: Cluster, db: None) -> Kept:
    return joined(cluster)


@pytest.fixture
def faked(fake_cluster: Cluster, db: None) -> Kept:
    """For tests independent of the server's own behavior."""
    return joined(fake_cluster)
