"""Validate objects with an API server in strict mode, without storing them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.kube.cluster import Cluster

STRICT = {"fieldValidation": "Strict", "dryRun": "All"}


def taken(cluster: Cluster, space: str, objects: Iterable[dict[str, Any]]) -> None:
    """Apply the objects strictly as new (including third-party kinds), then as actually sent, then
    the pods of their templates, which controllers would reject only later.
    """
    for data in objects:
        where = data["kind"], data["metadata"].get("namespace", "")
        cluster.api.create(*where, data, **STRICT)
        cluster.api.apply(*where, data, "emberline", **STRICT)
        if "template" in data.get("spec", {}):
            template = data["spec"]["template"]
            pod = {**template, "metadata": {**template["metadata"], "name": "one"}}
            cluster.api.create("Pod", space, _alone(pod), **STRICT)


def _alone(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pod without claim-template disks, service account and priority class, which do not
    exist here.
    """
    elsewhere = ("serviceAccountName", "priorityClassName")
    spec = {key: value for key, value in pod["spec"].items() if key not in elsewhere}
    volumes = {volume["name"] for volume in spec["volumes"]}
    main, *others = spec["containers"]
    mounts = [mount for mount in main["volumeMounts"] if mount["name"] in volumes]
    return {**pod, "spec": {**spec, "containers": [{**main, "volumeMounts": mounts}, *others]}}
