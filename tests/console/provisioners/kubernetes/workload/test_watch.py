"""Watched objects: every change reported once, also across gaps, and no watch without its right."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from console.core import counters
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.client import KubernetesClient
from console.provisioners.kubernetes.workload import watch
from console.provisioners.kubernetes.workload.watch import WATCHED, ObjectWatch, is_watched
from tests.console.provisioners.kuberig import KubeRig
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

LABELS = {"emberline.dev/workload": "demo-worker", "emberline.dev/owner": "endpoint.demo"}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(watch, "MAX_RETRY_S", 0.1)


class Watched:
    """Watches of one namespace and what they report."""

    def __init__(self, rig: KubeRig, user: str = "") -> None:
        self.rig = rig
        self.client = KubernetesClient(rig.access(user), rig.namespace)
        self.owners: Counter[str] = Counter()
        self.reports: dict[str, list[str]] = {kind.plural: [] for kind in WATCHED}
        self.watches = [
            ObjectWatch(self.client, kind, self.owners.update, self.reports[kind.plural].append)
            for kind in WATCHED
        ]

    def __enter__(self) -> Watched:
        for one in self.watches:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.watches:
            one.stop()
        for one in self.watches:
            one.join(30)
            assert not one.is_alive()

    @property
    def live(self) -> bool:
        return is_watched(self.client.server, self.client.namespace)

    def pod(self, owner: str, name: str = "", **labels: str) -> str:
        name = name or f"pod-{owner.rpartition('.')[2]}"
        metadata = {"name": name, "labels": {**LABELS, "emberline.dev/owner": owner, **labels}}
        self.rig.cluster.api.create("Pod", self.rig.namespace, {"metadata": metadata, **POD})
        return name

    def expect_change(self, owner: str, times: int = 1) -> None:
        until(lambda: self.owners[owner] >= times, what=f"notice of {owner}")


POD: dict[str, Any] = {
    "spec": {
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "worker",
                "image": "registry.example/worker:1",
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
}


@pytest.fixture
def watched(cluster: Cluster) -> Iterator[Watched]:
    with Watched(KubeRig(cluster)) as found:
        until(lambda: found.live, what="both watches")
        yield found


@pytest.fixture
def fake_watched(fake_cluster: Cluster) -> Iterator[Watched]:
    with Watched(KubeRig(fake_cluster)) as found:
        until(lambda: found.live, what="both watches")
        yield found


def test_versions_are_found_by_workload_and_forgotten_with_it() -> None:
    def follow(event: str, name: str, version: str, workload: str) -> None:
        labels = {"emberline.dev/workload": workload}
        metadata = {"name": name, "resourceVersion": version, "labels": labels}
        one._apply(event, {"metadata": metadata})

    client: Any = SimpleNamespace(namespace="models")
    one = ObjectWatch(client, kinds.POD, lambda _: None, lambda _: None)
    follow("ADDED", "a", "1", "demo-worker")
    follow("ADDED", "b", "2", "demo-worker")
    follow("MODIFIED", "a", "3", "demo-worker")
    assert sorted(one.versions("demo-worker")) == [("a", "3"), ("b", "2")]
    follow("MODIFIED", "a", "4", "other-worker")
    assert one.versions("demo-worker") == [("b", "2")]
    assert one.versions("other-worker") == [("a", "4")]
    follow("DELETED", "a", "5", "other-worker")
    follow("DELETED", "b", "6", "demo-worker")
    follow("DELETED", "c", "7", "never-seen")
    assert one._versions == {}


def lists_of_pods(found: Watched) -> int:
    path = f"GET /api/v1/namespaces/{found.rig.namespace}/pods?limit="
    server = found.rig.cluster.plane.server  # type: ignore[attr-defined]
    return sum(line.startswith(path) for line in server.requests)


def test_changes_of_our_objects_are_reported_with_their_owner(watched: Watched) -> None:
    name = watched.pod("endpoint.demo")
    watched.expect_change("endpoint/demo")
    watched.pod("cache-tier.l2")
    watched.expect_change("cache-tier/l2")
    before = watched.owners["endpoint/demo"]
    watched.rig.cluster.api.delete("Pod", watched.rig.namespace, name, gracePeriodSeconds=0)
    watched.expect_change("endpoint/demo", before + 1)
    metadata = {"name": "foreign", "labels": {"app": "other"}}
    watched.rig.cluster.api.create("Pod", watched.rig.namespace, {"metadata": metadata, **POD})
    watched.pod("endpoint.last")
    watched.expect_change("endpoint/last")
    assert set(watched.owners) == {"endpoint/demo", "cache-tier/l2", "endpoint/last"}


def test_deployments_of_a_workload_are_watched(watched: Watched) -> None:
    ref = watched.rig.provisioner.apply(watched.rig.spec("demo", 1))
    watched.expect_change("endpoint/demo")
    before = watched.owners["endpoint/demo"]
    watched.rig.provisioner.delete(ref)
    watched.expect_change("endpoint/demo", before + 1)


def test_provisioner_announces_only_while_both_watches_are_live(fake_cluster: Cluster) -> None:
    rig = KubeRig(fake_cluster)
    assert not rig.provisioner.announces
    with Watched(rig) as found:
        until(lambda: rig.provisioner.announces, what="both watches")
        assert found.reports == {"pods": [""], "deployments": [""]}
        found.watches[0].stop()
        assert not rig.provisioner.announces
    assert not rig.provisioner.announces


def test_interrupted_watch_resumes_without_a_list(fake_watched: Watched) -> None:
    fake_watched.pod("endpoint.demo")
    fake_watched.expect_change("endpoint/demo")
    lists = lists_of_pods(fake_watched)
    lost = counters.total("cluster_watches_lost", kind="pods")
    fake_watched.owners.clear()
    fake_watched.rig.cluster.plane.stop_api()  # type: ignore[attr-defined]
    until(lambda: any(fake_watched.reports["pods"]), what="loss reported")
    fake_watched.expect_change("endpoint/demo")  # what happens to it is unknown from now on
    fake_watched.rig.cluster.plane.start_api()  # type: ignore[attr-defined]
    fake_watched.pod("endpoint.new")
    fake_watched.expect_change("endpoint/new")
    until(lambda: fake_watched.live, what="both watches again")
    assert counters.total("cluster_watches_lost", kind="pods") > lost
    assert lists_of_pods(fake_watched) == lists == 1


def test_expired_version_is_listed_again_and_compared(fake_watched: Watched) -> None:
    """What changed, came or went in the gap is reported; what did not is not."""
    rig, plane = fake_watched.rig, fake_watched.rig.cluster.plane
    for owner in ("kept", "gone"):
        fake_watched.pod(f"endpoint.{owner}")
        fake_watched.expect_change(f"endpoint/{owner}")
    settle(rig)
    version = version_of(rig, "pod-kept")
    # Events come in order: with the next one, the watch has those that made the others ready.
    fake_watched.pod("endpoint.mark")
    fake_watched.expect_change("endpoint/mark")
    listed = lists_of_pods(fake_watched)
    with plane.failing(f"GET .*{rig.namespace}/(pods|deployments)[?].*watch"):  # type: ignore[attr-defined]
        plane.stop_api()  # type: ignore[attr-defined]
        until(lambda: any(fake_watched.reports["pods"]), what="loss reported")
        plane.start_api()  # type: ignore[attr-defined]
        rig.cluster.api.delete("Pod", rig.namespace, "pod-gone", gracePeriodSeconds=0)
        fake_watched.pod("endpoint.came")
        settle(rig)
        plane.expire()  # type: ignore[attr-defined]
        fake_watched.owners.clear()
    fake_watched.expect_change("endpoint/gone")
    fake_watched.expect_change("endpoint/came")
    until(lambda: fake_watched.live, what="both watches again")
    assert lists_of_pods(fake_watched) > listed
    # A late kubelet may have changed it after all.
    is_same = version_of(rig, "pod-kept") == version
    assert ("endpoint/kept" not in fake_watched.owners) or not is_same


def version_of(rig: KubeRig, name: str) -> str:
    pods = {pod["metadata"]["name"]: pod["metadata"] for pod in rig.cluster.pods(rig.namespace)}
    return str(pods[name]["resourceVersion"])


def settle(rig: KubeRig) -> None:
    """Wait until every pod is ready, so that none changes by itself."""

    def ready() -> bool:
        return all(
            any(c["type"] == "Ready" and c["status"] == "True" for c in conditions(pod))
            for pod in rig.cluster.pods(rig.namespace)
        )

    until(ready, what="pods ready")


def conditions(pod: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pod.get("status", {}).get("conditions", [])
    return found


def test_missing_right_is_reported_with_its_remedy(cluster: Cluster) -> None:
    with Watched(KubeRig(cluster), "person-1") as found:
        until(lambda: all(found.reports.values()), what="both refused")
        assert all("denies permission" in texts[0] for texts in found.reports.values())
        assert not found.live


def test_streams_are_opened_at_a_bounded_rate_where_each_ends_at_once(
    fake_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that cuts every stream must not be queried in a loop."""
    waits: list[float] = []
    opened = threading.Event()

    class Pauses(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout or 0.0)
            if len(waits) > 4:
                opened.set()
            return super().wait(timeout)

    rig = KubeRig(fake_cluster)
    one = ObjectWatch(KubernetesClient(rig.access(), rig.namespace), kinds.POD, _ignore, _ignore)
    monkeypatch.setattr(one, "_stopped", Pauses())
    with fake_cluster.plane.failing(f"GET .*{rig.namespace}/pods[?].*watch"):  # type: ignore[attr-defined]
        one.start()
        assert opened.wait(60)
        one.stop()
        one.join(30)
    assert all(seconds > 0 for seconds in waits[1:4])


_ignore: Callable[[Any], None] = lambda _: None  # noqa: E731
