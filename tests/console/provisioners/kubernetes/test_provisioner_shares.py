"""Switching endpoints between model buckets and back."""

from __future__ import annotations

from typing import Any

import pytest

from console.provisioners.base import Ref, WorkloadSpec
from console.provisioners.kubernetes.provisioner import KubernetesProvisioner
from console.provisioners.pods import Volume
from tests.console.provisioners.contract import gone, settle
from tests.console.provisioners.kuberig import CAPABILITIES, KubeRig
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

REF = Ref("kubernetes", "demo")


@pytest.fixture
def provisioner_rig(cluster: Cluster) -> KubeRig:
    out = KubeRig(cluster)
    able = CAPABILITIES | {"s3-csi"}
    out.provisioner = KubernetesProvisioner(out.access(), out.namespace, able)
    return out


def reading(rig: KubeRig, folder: str) -> WorkloadSpec:
    source: dict[str, Any] = {
        "mountOptions": [f"prefix {folder}/"],
        "csi": {"driver": "s3.csi.aws.com", "volumeHandle": "b", "volumeAttributes": {"b": "c"}},
    }
    spec = rig.spec("demo", 1, folder)
    return rig.podded(spec, volumes=(Volume("model", source, "/model", True),))


def shares(rig: KubeRig) -> dict[str, bool]:
    """Return claims and their volumes by name: whether each is being deleted."""
    label = "emberline.dev/workload=demo"
    claims = rig.cluster.api.list("PersistentVolumeClaim", rig.namespace, label)
    volumes = [
        data
        for data in rig.cluster.api.list("PersistentVolume", "", label)
        if data["spec"]["claimRef"]["namespace"] == rig.namespace
    ]
    found = [data["metadata"] for data in (*claims, *volumes)]
    return {data["name"]: "deletionTimestamp" in data for data in found}


def test_old_folder_is_kept_until_the_new_one_serves(provisioner_rig: KubeRig) -> None:
    settle(provisioner_rig, reading(provisioner_rig, "v1"))
    first = shares(provisioner_rig)
    second = reading(provisioner_rig, "v2")
    rule = {"emberline.dev/spec-hash": second.spec_hash}
    provisioner_rig.cluster.rule(provisioner_rig.namespace, behaviour="never-ready", labels=rule)
    provisioner_rig.provisioner.apply(second)
    until(
        lambda: len(provisioner_rig.provisioner.observe(REF).replicas) == 2,
        what="a new pod beside the old",
    )
    provisioner_rig.provisioner.apply(second)
    assert list(shares(provisioner_rig).values()) == [False] * 4
    settle(provisioner_rig, reading(provisioner_rig, "v1"))

    def tidied() -> bool:
        provisioner_rig.provisioner.apply(reading(provisioner_rig, "v1"))
        return shares(provisioner_rig) == first

    until(tidied, what="the folder that never served is let go")
    provisioner_rig.provisioner.delete(REF)
    gone(provisioner_rig, REF)
    assert shares(provisioner_rig) == {}


def test_old_folder_is_released_when_unused(provisioner_rig: KubeRig) -> None:
    settle(provisioner_rig, reading(provisioner_rig, "v1"))
    first = shares(provisioner_rig)
    second = reading(provisioner_rig, "v2")
    settle(provisioner_rig, second)

    def tidied() -> bool:
        provisioner_rig.provisioner.apply(second)
        return len(shares(provisioner_rig)) == 2

    until(tidied, what="the old folder is let go")
    assert not first.keys() & shares(provisioner_rig).keys()
    before = provisioner_rig.get("ConfigMap", "demo")["metadata"]["resourceVersion"]
    provisioner_rig.provisioner.apply(second)
    assert provisioner_rig.get("ConfigMap", "demo")["metadata"]["resourceVersion"] == before
