"""Objects before an API server, as strict as it can be; nothing of them stays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.support.kube.cluster import Cluster

STRICT = {"fieldValidation": "Strict", "dryRun": "All"}


def taken(cluster: Cluster, space: str, objects: Iterable[dict[str, Any]]) -> None:
    """Once as new objects (strict also of other makers' kinds), once as they are really sent; and
    the pods they ask for, which nobody else would refuse in time."""
    for data in objects:
        where = data["kind"], data["metadata"].get("namespace", "")
        cluster.api.create(*where, data, **STRICT)
        cluster.api.apply(*where, data, "emberline", **STRICT)
        if "template" in data.get("spec", {}):
            template = data["spec"]["template"]
            pod = {**template, "metadata": {**template["metadata"], "name": "one"}}
            cluster.api.create("Pod", space, _alone(pod), **STRICT)


def _alone(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Disks of a StatefulSet come from its claim templates; accounts and priorities are not there,
    and only their absence would be told."""
    elsewhere = ("serviceAccountName", "priorityClassName")
    spec = {key: value for key, value in pod["spec"].items() if key not in elsewhere}
    volumes = {volume["name"] for volume in spec["volumes"]}
    main, *others = spec["containers"]
    mounts = [mount for mount in main["volumeMounts"] if mount["name"] in volumes]
    return {**pod, "spec": {**spec, "containers": [{**main, "volumeMounts": mounts}, *others]}}
