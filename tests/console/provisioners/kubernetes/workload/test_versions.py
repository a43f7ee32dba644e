"""An unchanged workload costs no requests; every change of it is found all the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.provisioners.base import Ref, WorkloadSpec
from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.rendering.anchor import OwnedItem
from console.provisioners.kubernetes.workload import observation, versions, watch
from console.provisioners.kubernetes.workload.drift import MISSING
from console.provisioners.kubernetes.workload.observation_cache import MEMORY
from console.provisioners.kubernetes.workload.watch import WATCHED, ObjectWatch
from tests.console.provisioners.contract import settle
from tests.console.provisioners.kuberig import KubeRig
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

REF = Ref("kubernetes", "demo")
NEVER = 1e9


class Idle:
    """A watched workload and the requests of its passes."""

    def __init__(self, rig: KubeRig, patch: pytest.MonkeyPatch, secret: Path) -> None:
        self.rig = rig
        self.secret = secret
        self.reads = self.lists = 0
        self.client = client = KubernetesClient(rig.access(), rig.namespace)
        self.watches = [
            ObjectWatch(client, kind, lambda _: None, lambda _: None) for kind in WATCHED
        ]
        self.server = client.server
        self.spec = self.with_secret("first")
        send = KubernetesClient._send

        def counted(this: KubernetesClient, *args: Any, **named: Any) -> Any:
            listed = any("PartialObjectMetadataList" in str(one) for one in args)
            self.lists += listed
            self.reads += not listed
            return send(this, *args, **named)

        patch.setattr(KubernetesClient, "_send", counted)

    def with_secret(self, text: str) -> WorkloadSpec:
        self.secret.write_text(text)
        return dataclasses.replace(self.rig.spec("demo", 1), secret_env={"TOKEN": str(self.secret)})

    @property
    def live(self) -> bool:
        return watch.is_watched(self.server, self.rig.namespace)

    def one_pass(self) -> tuple[int, int]:
        """Return its reads and writes, and its lists."""
        self.reads = self.lists = 0
        self.rig.provisioner.observe(REF)
        self.rig.provisioner.apply(self.spec)
        self.rig.provisioner.observe(REF)
        return self.reads, self.lists

    def rest(self) -> None:
        """Run passes until one reads nothing."""
        until(lambda: self.one_pass()[0] == 0, what="a pass without reading an object")


@pytest.fixture
def idle(fake_cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Idle]:
    monkeypatch.setattr(observation, "CHECK_EVERY_S", -1.0)
    monkeypatch.setattr(versions, "LISTED_FOR_S", -1.0)
    found = Idle(KubeRig(fake_cluster), monkeypatch, tmp_path / "token")
    for one in found.watches:
        one.start()
    until(lambda: found.live, what="both watches")
    settle(found.rig, found.spec)
    found.rest()
    yield found
    for one in found.watches:
        one.stop()
    for one in found.watches:
        one.join(30)


def test_unchanged_workload_is_listed_with_its_namespace_only(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed_only() -> bool:
        reads, lists = idle.one_pass()
        return lists > 0 and reads == 0

    until(listed_only, what="a pass that lists only")
    monkeypatch.setattr(versions, "LISTED_FOR_S", NEVER)
    calm = [(0, 0)] * 3
    until(lambda: [idle.one_pass() for _ in calm] == calm, what="passes without requests")


def test_deleted_object_is_found_and_recreated(idle: Idle) -> None:
    idle.rig.cluster.api.delete("Service", idle.rig.namespace, "demo")
    (gone,) = idle.rig.provisioner.observe(REF).drift
    assert (gone.object, gone.wanted) == ("Service/demo", MISSING)
    idle.rig.provisioner.apply(idle.spec)
    assert idle.rig.get("Service", "demo") is not None
    idle.rest()


def test_edit_of_a_watched_object_is_found_without_a_list(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "LISTED_FOR_S", NEVER)
    path = idle.rig.cluster.api.path("Deployment", idle.rig.namespace, "demo")
    edit = {"spec": {"minReadySeconds": 1}}
    media = "application/merge-patch+json"
    idle.rig.cluster.api.ask("PATCH", path, edit, media, fieldManager="kubectl-edit")
    found = until(lambda: idle.rig.provisioner.observe(REF).drift, what="drift")
    assert {one.key for one in found} == {"Deployment/demo.spec.minReadySeconds"}


def test_death_of_a_pod_is_found_without_a_list(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "LISTED_FOR_S", NEVER)
    (before,) = idle.rig.provisioner.observe(REF).replicas
    idle.rig.cluster.api.delete("Pod", idle.rig.namespace, before.name, gracePeriodSeconds=0)
    names: list[str] = []

    def replaced() -> bool:
        names[:] = [one.name for one in idle.rig.provisioner.observe(REF).replicas]
        return before.name not in names

    until(replaced, what="the pod is gone")


def test_new_revision_and_changed_secret_are_applied(idle: Idle) -> None:
    secrets = idle.rig.cluster.api.list("Secret", idle.rig.namespace)
    before = [body["data"] for body in secrets if body.get("data")]
    idle.spec = idle.with_secret("second")
    idle.rig.provisioner.apply(idle.spec)
    secrets = idle.rig.cluster.api.list("Secret", idle.rig.namespace)
    assert [body["data"] for body in secrets if body.get("data")] != before
    idle.spec = dataclasses.replace(idle.spec, env={"REVISION": "2"})
    settle(idle.rig, idle.spec)
    idle.rest()


def test_healing_and_a_request_for_drift_read_the_objects(idle: Idle) -> None:
    idle.rig.provisioner.heal(REF)
    assert idle.rig.get("ConfigMap", "demo")["data"]["digest"] == ""
    idle.rig.provisioner.apply(idle.spec)
    assert idle.rig.get("ConfigMap", "demo")["data"]["digest"]
    idle.rest()
    idle.rig.provisioner.drift(REF)
    assert idle.one_pass()[0]


def test_all_fields_are_compared_from_time_to_time(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation, "FULL_S", 0.0)
    MEMORY.forget((idle.server, idle.rig.namespace, "demo"))
    assert [idle.one_pass()[0] > 0 for _ in range(4)] == [True] * 4


def test_without_watches_and_lists_every_pass_reads(
    idle: Idle, monkeypatch: pytest.MonkeyPatch
) -> None:
    with idle.rig.cluster.plane.failing("GET .*/secrets", 403):  # type: ignore[attr-defined]
        items = [OwnedItem("v1", "Secret", "any")]
        assert versions.read_versions(idle.client, "demo", items) is None
    idle.watches[0].stop()
    assert [idle.one_pass()[0] > 0 for _ in range(3)] == [True] * 3
