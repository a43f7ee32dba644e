"""The displayed rights are sufficient to follow objects, and missing ones are reported."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from console.clusters import selectors as clusters
from console.core import uses
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.discovery import rights
from endpoints.actions import SYSTEM
from endpoints.controller import actions as follows
from endpoints.controller import cluster_objects, reconciler
from endpoints.manifests import schemas
from tests.endpoints.controller.conftest import Followed
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
PERSON = "person-3"
GROUP = tuple(one for one in rights.RIGHTS if one.part == rights.FOLLOW_GROUP)


def _roles(namespace: str) -> list[dict[str, Any]]:
    """Only the rights of following, without those of workloads."""
    shown = yaml.safe_load_all(rights.manifest(GROUP, PERSON, namespace))
    return [one for one in shown if one["kind"] in ("Role", "ClusterRole")]


def _bind(cluster: Cluster, namespace: str, role: dict[str, Any]) -> None:
    kind, name = role["kind"], f"{role['metadata']['name']}-{namespace}"
    where = namespace if kind == "Role" else ""
    body = {**role, "metadata": {"name": name}}
    cluster.api.create(kind, where, body)
    cluster.api.create(
        f"{kind}Binding",
        where,
        {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "User", "name": PERSON}],
        },
    )


def test_role_group_is_sufficient(
    cluster: Cluster, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster.plane.kubeconfig_of(PERSON, followed.namespace).read_text(encoding="utf-8")
    access = ClusterAccess(KUBECONFIG, config)
    monkeypatch.setattr(clusters, "access", lambda _name: (access, "default"))
    refused = followed.follow()
    assert (refused.phase, refused.reason) == ("Failed", "ClusterRefused")
    assert "customresourcedefinitions" in refused.message
    roles = _roles(followed.namespace)
    try:
        for role in roles:
            _bind(cluster, followed.namespace, role)
        until(lambda: followed.follow().reason == "Following", what="rights taken in")
        followed.apply()
        assert followed.follow().message == "1 object."
        assert followed.condition("Accepted")["status"] == "True"
        assert "Applied" in dict(followed.events())
        followed.harness.until(followed.endpoint(), "Ready")
        followed.delete()
        followed.follow()
        followed.harness.gone(followed.endpoint())
        followed.follow()
        assert not followed.there()
    finally:
        for kind in ("ClusterRoleBinding", "ClusterRole"):
            cluster.api.delete(kind, "", f"{rights.NAME}-{followed.namespace}")


def test_role_group_depends_on_followed_namespaces() -> None:
    """The room of clusters does not know ours, so it says the names again."""
    requested = {(one.group, one.resource) for one in GROUP}
    kinds = {
        (kind.group, kind.plural)
        for kind in (cluster_objects.OBJECT, cluster_objects.DEFINITION, cluster_objects.EVENT)
    }
    assert requested == kinds | {
        (cluster_objects.OBJECT.group, f"{cluster_objects.OBJECT.plural}/status")
    }
    assert {one.names for one in GROUP} == {(), (schemas.NAME,)}
    for one in GROUP:
        assert one.optional
        assert "delete" not in one.verbs


def test_followed_namespaces_are_reported_until_released(followed: Followed) -> None:
    assert uses.of("followed", "west") == [followed.namespace]
    assert uses.of("followed", "east") == []
    follows.unfollow(SYSTEM, str(followed.row.pk))
    assert uses.of("followed", "west") == [followed.namespace], "finalizers have to be taken off"
    reconciler.follow(str(followed.row.pk))
    assert uses.of("followed", "west") == []
