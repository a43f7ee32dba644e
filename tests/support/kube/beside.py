"""Events of the simulated kubelet, and volumes of the simulated provisioner."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from tests.support.kube.behaviours import PLAYER, Containers, stamp
from tests.support.kube.client import Kube

CLASS = "standard"  # storage class of the simulation
EVENTS = {
    "ImagePullBackOff": ("Failed", "Failed to pull image"),
    "CrashLoopBackOff": ("BackOff", "Back-off restarting failed container"),
    "CreateContainerConfigError": ("Failed", "Error: secret not found"),
}


def event_of(how: Containers) -> tuple[str, str, bool] | None:
    """Return reason, message and whether it is a warning; None without an event."""
    waits = how.state.get("waiting", {}).get("reason", "") or (
        how.init.get("waiting", {}).get("reason", "")
    )
    if waits in EVENTS:
        return (*EVENTS[waits], True)
    if "running" in how.state and not how.restarts and how.started and not how.ready:
        return "Unhealthy", "Readiness probe failed", True
    if how.ready:
        return "Started", "Started container", False
    return None


def record(api: Kube, pod: Mapping[str, Any], reason: str, message: str, warning: bool) -> None:
    metadata, now = pod["metadata"], stamp(time.time())
    about = {"kind": "Pod", "apiVersion": "v1", "uid": metadata["uid"]}
    about |= {"name": metadata["name"], "namespace": metadata["namespace"]}
    data = {
        "metadata": {"generateName": f"{metadata['name']}."},
        "involvedObject": about,
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "kubelet", "host": pod["spec"].get("nodeName", "")},
    }
    api.create("Event", metadata["namespace"], data)


def storage_class(api: Kube) -> None:
    if api.find("StorageClass", "", CLASS) is None:
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        metadata = {"name": CLASS, "annotations": default}
        data = {"metadata": metadata, "provisioner": PLAYER, "allowVolumeExpansion": True}
        api.create("StorageClass", "", data)


def provide(api: Kube, claim: Mapping[str, Any]) -> None:
    """Create the volume of a pending claim of our class; the cluster binds them."""
    spec, metadata = claim["spec"], claim["metadata"]
    phase = claim.get("status", {}).get("phase", "Pending")
    name = f"pvc-{metadata['uid']}"
    if spec.get("storageClassName") != CLASS or phase != "Pending" or spec.get("volumeName"):
        return
    if api.find("PersistentVolume", "", name) is not None:
        return
    ref = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "uid": metadata["uid"]}
    ref |= {"name": metadata["name"], "namespace": metadata["namespace"]}
    data = {
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PLAYER}},
        "spec": {
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "accessModes": spec["accessModes"],
            "claimRef": ref,
            "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": f"/player/{name}"},
        },
    }
    api.create("PersistentVolume", "", data)
