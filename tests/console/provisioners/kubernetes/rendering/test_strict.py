"""Every object of every workload before a real API server, as strict as it can be: an unknown or
mistyped field, a pod that pod security refuses, a name that is none, all fail here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.provisioners.kubernetes.rendering.render import render
from tests.console.provisioners.kubernetes.rendering.matrix import SECRETS, SPECS, TARGET
from tests.support.kube.cluster import Cluster

STRICT = {"fieldValidation": "Strict", "dryRun": "All"}


@pytest.fixture
def space(cluster: Cluster) -> str:
    return cluster.namespace(**cluster.restricted)


@pytest.mark.parametrize("name", SPECS)
def test_every_object_is_taken(cluster: Cluster, space: str, name: str) -> None:
    api = cluster.api
    for data in render(SPECS[name], replace(TARGET, namespace=space), SECRETS):
        where = data["kind"], data["metadata"].get("namespace", "")
        # Once as a new object (strict also of other makers' kinds), once as it is really sent.
        api.create(*where, data, **STRICT)
        api.apply(*where, data, "emberline", **STRICT)
        if "template" in data.get("spec", {}):
            template = data["spec"]["template"]
            pod = {**template, "metadata": {**template["metadata"], "name": "one"}}
            api.create("Pod", space, _without_claims(pod), **STRICT)


def _without_claims(pod: dict[str, Any]) -> dict[str, Any]:
    """Disks of a StatefulSet come from its claim templates; accounts and priorities are not there,
    and only their absence would be told."""
    spec = {k: v for k, v in pod["spec"].items() if k not in ("serviceAccountName",)}
    spec.pop("priorityClassName", None)
    volumes = {volume["name"] for volume in spec["volumes"]}
    main, *others = spec["containers"]
    mounts = [mount for mount in main["volumeMounts"] if mount["name"] in volumes]
    return {**pod, "spec": {**spec, "containers": [{**main, "volumeMounts": mounts}, *others]}}


def test_the_server_refuses_what_is_misspelt(cluster: Cluster, space: str) -> None:
    """So that the test above means something."""
    data = render(SPECS["worker"], replace(TARGET, namespace=space), SECRETS)[-2]
    assert data["kind"] == "Deployment"
    data["spec"]["template"]["spec"]["terminationGracePeriodSecondz"] = 1
    with pytest.raises(AssertionError, match="terminationGracePeriodSecondz"):
        cluster.api.create(data["kind"], space, data, **STRICT)
