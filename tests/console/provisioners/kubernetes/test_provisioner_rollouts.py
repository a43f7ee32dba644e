"""Reporting of rollouts by the cluster: surge, failed revision, lost node."""

from __future__ import annotations

import dataclasses

import pytest

from console.provisioners.base import Observation, Ref, ReplicaState, WorkloadSpec
from tests.console.provisioners.contract import settle
from tests.console.provisioners.kuberig import KubeRig
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

REF = Ref("kubernetes", "demo")
_SHORT = -57
"""Of a start: with the minute that is added, a rollout is given up after three seconds."""


@pytest.fixture
def provisioner_rig(cluster: Cluster) -> KubeRig:
    return KubeRig(cluster)


def failing(rig: KubeRig) -> tuple[WorkloadSpec, WorkloadSpec]:
    """Return a revision that serves, and one whose pods never become ready."""
    good = rig.podded(rig.spec("demo", 2), startup_s=_SHORT)
    bad = dataclasses.replace(good, env={"REVISION": "2"})
    labels = {"emberline.dev/spec-hash": bad.spec_hash}
    rig.cluster.rule(rig.namespace, behaviour="crash-loop", labels=labels)
    return good, bad


class TestRollouts:
    def test_failing_revision_costs_no_replica_and_is_rolled_back(
        self, provisioner_rig: KubeRig
    ) -> None:
        good, bad = failing(provisioner_rig)
        before = settle(provisioner_rig, good)
        provisioner_rig.provisioner.apply(bad)
        fewest = 2

        def given_up() -> Observation | None:
            nonlocal fewest
            seen = provisioner_rig.provisioner.observe(REF)
            fewest = min(fewest, len(seen.ready(good.spec_hash)))
            return seen if seen.failed else None

        seen = until(given_up, what="given up")
        assert fewest == 2
        assert seen.failed == "ProgressDeadlineExceeded"
        assert "CrashLoopBackOff" in seen.message
        assert {replica.spec_hash for replica in seen.replicas} == {good.spec_hash, bad.spec_hash}
        assert seen.parts[0].ready is False
        after = settle(provisioner_rig, good)
        assert {r.name for r in after.replicas} == {r.name for r in before.replicas}
        assert after.failed == ""

    def test_stateful_workload_keeps_names_and_reports_a_stalled_rollout(
        self, provisioner_rig: KubeRig
    ) -> None:
        good, bad = (provisioner_rig.podded(spec, stable=True) for spec in failing(provisioner_rig))
        labels = {"emberline.dev/spec-hash": bad.spec_hash}
        provisioner_rig.cluster.rule(
            provisioner_rig.namespace, behaviour="crash-loop", labels=labels
        )
        before = settle(provisioner_rig, good)
        assert [replica.name for replica in before.replicas] == ["demo-0", "demo-1"]
        assert [replica.index for replica in before.replicas] == [0, 1]
        provisioner_rig.provisioner.apply(bad)
        seen = until(lambda: _failed(provisioner_rig), what="given up")
        assert [r.name for r in seen.ready(good.spec_hash)] == ["demo-0"]


@pytest.mark.kubernetes
class TestNodes:
    def test_lost_node_is_reported_and_its_pods_replaced(self, real_cluster: Cluster) -> None:
        rig = KubeRig(real_cluster)
        node = real_cluster.node("lost", "m5.large")
        spec = rig.podded(
            rig.spec("demo", 1),
            node_affinity={},
            tolerations=(
                {
                    "key": "node.kubernetes.io/unreachable",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 1,
                },
            ),
            node_selector={"kubernetes.io/hostname": node},
        )
        settle(rig, spec)
        real_cluster.lose(node)

        def reported() -> Observation | None:
            seen = rig.provisioner.observe(REF)
            lost = [r for r in seen.replicas if r.reason in ("NodeLost", "StuckTerminating")]
            return seen if lost else None

        seen = until(reported, 90, what="reported")
        assert seen.replicas[0].state in (ReplicaState.UNKNOWN, ReplicaState.STOPPING)
        assert node in seen.replicas[0].message
        real_cluster.bury(node)
        anywhere = rig.podded(spec, node_selector={})
        settle(rig, anywhere)


def _failed(rig: KubeRig) -> Observation | None:
    seen = rig.provisioner.observe(REF)
    return seen if seen.failed else None
