"""Followed namespace of a cluster, and manual passes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from console.clusters import selectors as clusters
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from endpoints.actions import SYSTEM
from endpoints.controller import actions, reconciler
from endpoints.controller.models import Follow, FollowStatus
from endpoints.manifests import schemas
from endpoints.models import Endpoint
from tests.endpoints.manifests.conftest import LEAST, put
from tests.support.endpoints.reconciler_harness import ReconcilerHarness
from tests.support.kube import client as kube
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

KIND = "InferenceEndpointConfig"
GROUP = "inference.sagemaker.aws.amazon.com"
kube.KINDS[KIND] = (f"/apis/{GROUP}/v1", "inferenceendpointconfigs", True)


@dataclass
class Followed:
    """Test access to it: `apply` works like kubectl, `follow` like the console."""

    cluster: Cluster
    namespace: str
    row: Follow
    harness: ReconcilerHarness = field(default_factory=ReconcilerHarness)

    def follow(self) -> FollowStatus:
        """Until the cluster has taken the definition in, which takes it a moment."""
        return until(self._follow_once, what="a pass")

    def _follow_once(self) -> FollowStatus | None:
        reconciler.follow(str(self.row.pk))
        status = FollowStatus.objects.get(pk=self.row.pk)
        return None if status.reason in ("DefinitionPending", "Accepted") else status

    def apply(self, name: str = "llama", **changes: Any) -> dict[str, Any]:
        """With changes as {"spec/replicas": 2}; returns the object as the server has it."""
        document = put(put(LEAST, "metadata/name", name), "metadata/namespace", self.namespace)
        for path, value in changes.items():
            document = put(document, path, value)
        found: dict[str, Any] = self.cluster.api.apply(
            KIND, self.namespace, document, manager="kubectl", force="true"
        )
        return found

    def get(self, name: str = "llama") -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.api.get(KIND, self.namespace, name)
        return found

    def there(self, name: str = "llama") -> bool:
        return self.cluster.api.find(KIND, self.namespace, name) is not None

    def delete(self, name: str = "llama") -> None:
        self.cluster.api.delete(KIND, self.namespace, name)

    def condition(self, kind: str, name: str = "llama") -> dict[str, Any]:
        conditions = self.get(name)["status"]["conditions"]
        return next(one for one in conditions if one["type"] == kind)

    def endpoint(self, name: str = "llama") -> Endpoint:
        return Endpoint.objects.get(name=name)

    def events(self) -> list[tuple[str, str]]:
        found = self.cluster.api.list("Event", self.namespace)
        return [(one["reason"], one["message"]) for one in found if "source" in one]


@pytest.fixture
def kubeconfig(cluster: Cluster) -> str:
    return cluster.kubeconfig.read_text(encoding="utf-8")


@pytest.fixture
def reached(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> ClusterAccess:
    """The console's name of the cluster is west."""
    access = ClusterAccess(KUBECONFIG, kubeconfig)
    monkeypatch.setattr(clusters, "access", lambda _name: (access, "default"))
    monkeypatch.setattr(clusters, "names", lambda: ["west"])
    return access


@pytest.fixture
def followed(
    cluster: Cluster, reached: ClusterAccess, settings: Any, db: None
) -> Iterator[Followed]:
    shutil.rmtree(settings.EMBERLINE.secrets / "endpoints", ignore_errors=True)
    namespace = cluster.namespace()
    yield Followed(cluster, namespace, actions.follow(SYSTEM, "west", namespace))
    # No namespace ends while an object in it waits for our leave.
    if cluster.api.find("CustomResourceDefinition", "", schemas.NAME):
        for item in cluster.api.list(KIND, namespace):
            name = item["metadata"]["name"]
            cluster.api.merge(KIND, namespace, name, {"metadata": {"finalizers": None}})


@pytest.fixture
def ready(followed: Followed) -> Followed:
    """With the definition installed, and its object's endpoint serving."""
    followed.follow()
    followed.apply()
    followed.follow()
    followed.harness.until(followed.endpoint(), "Ready")
    followed.follow()
    return followed


def remove_definition(api: Any) -> None:
    """And all objects with it, for which the server takes its time."""
    for item in api.list(KIND):
        where = item["metadata"]["namespace"], item["metadata"]["name"]
        api.merge(KIND, *where, {"metadata": {"finalizers": None}})
    api.delete("CustomResourceDefinition", "", schemas.NAME)
    until(lambda: not api.find("CustomResourceDefinition", "", schemas.NAME), 60, "definition gone")
