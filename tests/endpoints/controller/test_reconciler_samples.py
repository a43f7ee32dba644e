"""Published samples applied to a cluster, running there, and exported."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from console.provisioners.kubernetes.api.access import ClusterAccess
from console.provisioners.kubernetes.api.capabilities import CAPABILITIES
from console.provisioners.kubernetes.provisioner import KubernetesProvisioner
from endpoints import manifest_actions
from endpoints.models import Endpoint
from tests.endpoints.controller.conftest import KIND, Followed
from tests.endpoints.manifests.conftest import SAMPLES, sample
from tests.support.endpoints.reconciler_harness import ReconcilerHarness
from tests.support.kube.client import Refused
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
CONFIGS = [path for path in SAMPLES if sample(path)["kind"] == KIND]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem.removeprefix("sample_v1_"))
def test_sample_starts_and_reports_its_status(
    path: Path, cluster: Cluster, followed: Followed, reached: ClusterAccess
) -> None:
    followed.follow()
    document = sample(path)
    cluster.node("sample", document["spec"]["instanceType"], gpus=8, cpu="192")
    name, document["metadata"]["namespace"] = document["metadata"]["name"], followed.namespace
    cluster.api.apply(KIND, followed.namespace, copy.deepcopy(document), manager="kubectl")
    followed.follow()
    provisioner = KubernetesProvisioner(reached, followed.namespace, frozenset(CAPABILITIES))
    harness = ReconcilerHarness(provisioner)
    endpoint = Endpoint.objects.get()

    def served() -> bool:
        status = harness.step(endpoint)
        assert status is not None
        assert status.phase != "Failed", f"{status.reason}: {status.message}"
        # The Redis of a sample is nowhere, which must not keep the endpoint from serving.
        return status.phase == "Ready" or status.reason == "L2Unavailable"

    until(served, what="the endpoint served")
    followed.follow()
    seen = followed.get(name)["status"]
    assert seen["state"] == "DeploymentComplete"
    pods = cluster.pods(followed.namespace, seen["selector"])
    assert [pod["spec"]["containers"][0]["image"] for pod in pods] == [
        document["spec"]["worker"]["image"]
    ]
    assert _all_of(document, manifest_actions.export_endpoint(endpoint.name))
    followed.delete(name)
    followed.follow()
    until(lambda: harness.step(Endpoint.objects.get()) is None, what="the endpoint gone")
    followed.follow()
    assert not followed.there(name)
    assert cluster.pods(followed.namespace) == []


def _all_of(wanted: Any, found: Any) -> bool:
    """The server adds the definition's defaults, and nothing else."""
    if isinstance(wanted, dict):
        return all(name in found and _all_of(item, found[name]) for name, item in wanted.items())
    if isinstance(wanted, list):
        return len(wanted) == len(found) and all(map(_all_of, wanted, found))
    return bool(wanted == found)


def test_server_rejects_placeholders_of_samples(cluster: Cluster, followed: Followed) -> None:
    """Those which the published schema can tell; the others are refused by us."""
    from endpoints.manifests import documents

    followed.follow()
    for path in CONFIGS:
        raw = documents.read_documents(path.read_text(encoding="utf-8"))[0]
        if "tlsConfig" in raw["spec"]:
            raw["metadata"]["namespace"] = followed.namespace
            with pytest.raises(Refused, match="tlsCertificateOutputS3Uri"):
                cluster.api.apply(KIND, followed.namespace, raw, manager="kubectl")
