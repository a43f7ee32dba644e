"""The rights which the manual names are enough to follow objects, and without them it is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from console.clusters import selectors as clusters
from console.provisioners.kubernetes.access import KUBECONFIG, ClusterAccess
from tests.endpoints.controller.conftest import Followed
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
MANUAL = Path(__file__).parents[3] / "docs" / "manifests.md"
PERSON = "person-3"


def _roles() -> list[dict[str, Any]]:
    text = MANUAL.read_text(encoding="utf-8").partition("### Rights")[2]
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    return list(yaml.safe_load_all(block.group(1)))


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


def test_the_rights_of_the_manual_are_enough(
    cluster: Cluster, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = cluster.plane.kubeconfig_of(PERSON, followed.namespace).read_text(encoding="utf-8")
    access = ClusterAccess(KUBECONFIG, config)
    monkeypatch.setattr(clusters, "access", lambda _name: (access, "default"))
    refused = followed.look()
    assert (refused.phase, refused.reason) == ("Failed", "ClusterRefused")
    assert "customresourcedefinitions" in refused.message
    roles = _roles()
    try:
        for role in roles:
            _bind(cluster, followed.namespace, role)
        until(lambda: followed.look().reason == "Following", what="rights taken in")
        followed.apply()
        assert followed.look().message == "1 objects."
        assert followed.condition("Accepted")["status"] == "True"
        assert "Applied" in dict(followed.events())
        followed.world.until(followed.endpoint(), "Ready")
        followed.delete()
        followed.look()
        followed.world.gone(followed.endpoint())
        followed.look()
        assert not followed.there()
    finally:
        for kind in ("ClusterRoleBinding", "ClusterRole"):
            name = f"{roles[0]['metadata']['name']}-{followed.namespace}"
            cluster.api.delete(kind, "", name)
