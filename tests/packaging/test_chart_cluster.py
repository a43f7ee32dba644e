"""Rendered chart objects in a cluster: strict fields, restricted pods, account rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from console.provisioners.kubernetes.discovery import rights
from tests.packaging import chart
from tests.packaging.chart import CASES, Object
from tests.support.kube.client import Kube
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

NAMESPACES = ("emberline", "models", "research")
KEYS = (
    *("django-secret-key", "encryption-key", "l2-password", "targets-token", "admin-password"),
    *("database-password", "redis-password"),
)


class Installed:
    """The objects of a case in namespaces of the test's own."""

    def __init__(self, cluster: Cluster, case: str) -> None:
        self.cluster, self.case = cluster, case
        self.spaces = {name: cluster.namespace(**cluster.restricted) for name in NAMESPACES}
        self.home = self.spaces["emberline"]
        self.objects = [self._moved(one) for one in chart.golden(case)]

    def _moved(self, one: Object) -> Object:
        """Namespaces' names stand in metadata and in subjects; a cluster's objects get our name."""
        for part in (one["metadata"], *one.get("subjects", ())):
            if "namespace" in part:
                part["namespace"] = self.spaces[part["namespace"]]
        if one["kind"].startswith("Cluster"):
            own = f"{self.home}-{one['metadata']['name'].rpartition('-')[2]}"
            one["metadata"]["name"] = own
            one.get("roleRef", {}).update(name=own)
        # Not this cluster's, and not what is tested.
        if "priorityClassName" in (pod := chart.pod_of(one) or {}):
            pod.pop("nodeSelector", None)
        return one

    def apply(self) -> None:
        api = self.cluster.api
        for name in ("emberline", "emberline-app", "emberline-redis", "pull"):
            keys = dict.fromkeys((*KEYS, "uri", "url"), "eA==")
            api.create("Secret", self.home, {"metadata": {"name": name}, "data": keys})
        api.create("ConfigMap", self.home, {"metadata": {"name": "cluster-ca"}, "data": {"ca": ""}})
        for one in self.objects:
            api.create(
                one["kind"], one["metadata"].get("namespace", ""), one, fieldValidation="Strict"
            )

    def remove_from_the_cluster(self) -> None:
        for one in self.objects:
            if "namespace" not in one["metadata"]:
                self.cluster.api.delete(one["kind"], "", one["metadata"]["name"])


@contextmanager
def install(cluster: Cluster, case: str) -> Iterator[Installed]:
    made = Installed(cluster, case)
    try:
        made.apply()
        yield made
    finally:
        made.remove_from_the_cluster()


@pytest.mark.parametrize("case", sorted(CASES))
def test_every_object_and_pod_is_accepted(cluster: Cluster, case: str) -> None:
    with install(cluster, case) as installed:
        _all_pods_come(installed)


def _all_pods_come(installed: Installed) -> None:
    wanted = {
        one["metadata"]["name"]: one["spec"]["replicas"]
        for one in installed.objects
        if one["kind"] in ("Deployment", "StatefulSet")
    }

    def ready() -> bool:
        found = {
            one["metadata"]["name"]: one.get("status", {}).get(counted, 0)
            # No provisioner creates the database's disk here: its pod stays pending.
            for kind, counted in (("Deployment", "readyReplicas"), ("StatefulSet", "replicas"))
            for one in installed.cluster.api.list(kind, installed.home)
        }
        return found == wanted

    # Pods of the account and with the security that the templates say: refused ones never come.
    until(ready, 60, what=f"pods of {sorted(wanted)}")


@pytest.mark.kubernetes
@pytest.mark.parametrize("case", sorted(CASES))
def test_console_account_has_exactly_the_required_rights(real_cluster: Cluster, case: str) -> None:
    with install(real_cluster, case) as installed:
        _no_more_and_no_less(installed)


def _no_more_and_no_less(installed: Installed) -> None:
    api = installed.cluster.api
    spaces = {one["metadata"]["namespace"] for one in installed.objects if one["kind"] == "Role"}
    cluster_wide = any(one["kind"] == "ClusterRole" for one in installed.objects)

    def may(verb: str, group: str, resource: str, namespace: str, one: str = "") -> bool:
        name, _, part = resource.partition("/")
        requested = {
            "verb": verb,
            "group": group,
            "resource": name,
            "subresource": part,
            "name": one,
        }
        body = {
            "spec": {
                "user": f"system:serviceaccount:{installed.home}:emberline",
                "resourceAttributes": {**requested, "namespace": namespace},
            }
        }
        answer = _review(api, body)
        return bool(answer["status"]["allowed"])

    for right in rights.RIGHTS:
        writes = "create" in right.verbs
        for verb in right.verbs:
            if right.part:
                spaces_of = {""} if right.cluster else spaces
                names = right.names or ("",)
                used = installed.case == "everything"
                for space in spaces_of:
                    kept = (
                        right.part != rights.RECEIVERS_GROUP or space == installed.spaces["models"]
                    )
                    given = used and kept
                    answers = {may(verb, right.group, right.resource, space, n) for n in names}
                    assert answers == {given}, (verb, right.title)
            elif right.cluster:
                given = cluster_wide and (installed.case == "everything" or not writes)
                assert may(verb, right.group, right.resource, "") is given, (verb, right.title)
            else:
                for space in spaces:
                    assert may(verb, right.group, right.resource, space), (verb, right.title)
    for verb, group, resource, where in (
        ("get", "", "secrets", "kube-system"),
        ("get", "", "secrets", ""),
        ("create", "", "pods", next(iter(spaces))),
        ("create", "", "pods/exec", next(iter(spaces))),
        ("update", "", "nodes", ""),
        ("bind", "rbac.authorization.k8s.io", "roles", next(iter(spaces))),
        ("escalate", "rbac.authorization.k8s.io", "roles", next(iter(spaces))),
        ("create", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("patch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
        ("delete", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ):
        assert not may(verb, group, resource, where), (verb, resource, where)
    if installed.home not in spaces:  # workloads apart: the console's own secrets stay its own
        assert not may("get", "", "secrets", installed.home)


def _review(api: Kube, body: dict[str, Any]) -> dict[str, Any]:
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    kind = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    answer: dict[str, Any] = api.ask("POST", path, {**kind, **body})
    return answer
