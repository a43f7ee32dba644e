"""Every object of every workload passes strict API validation: fields, names and pod security."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.provisioners.kubernetes.rendering.render import render
from tests.console.provisioners.kubernetes.rendering.matrix import (
    SECRETS,
    SPECS,
    TARGET,
    WORKER,
    pod_changed,
)
from tests.console.provisioners.kubernetes.rendering.strict import STRICT, taken
from tests.support.kube.client import Refused
from tests.support.kube.cluster import Cluster


@pytest.fixture
def space(cluster: Cluster) -> str:
    return cluster.namespace(**cluster.restricted)


@pytest.mark.parametrize("name", SPECS)
def test_every_object_is_accepted(cluster: Cluster, space: str, name: str) -> None:
    taken(cluster, space, render(SPECS[name], replace(TARGET, namespace=space), SECRETS))


def test_server_rejects_misspelt_fields(cluster: Cluster, space: str) -> None:
    """Counter-check of the test above."""
    objects = render(SPECS["worker"], replace(TARGET, namespace=space), SECRETS)
    (data,) = (one for one in objects if one["kind"] == "Deployment")
    data["spec"]["template"]["spec"]["terminationGracePeriodSecondz"] = 1
    with pytest.raises(Refused, match="terminationGracePeriodSecondz"):
        cluster.api.create(data["kind"], space, data, **STRICT)


def test_server_rejects_unrestricted_pods(cluster: Cluster, space: str) -> None:
    rude = {"name": "rude", "image": "i", "securityContext": {"privileged": True}}
    rude["securityContext"]["allowPrivilegeEscalation"] = True
    spec = pod_changed(WORKER, init_containers=(rude,))
    with pytest.raises(Refused, match="privileged"):
        taken(cluster, space, render(spec, replace(TARGET, namespace=space), SECRETS))
