"""Volumes of a pod: files, shared memory, volumes of the spec, and their claims.

Nothing is mounted over a workload's files, and CSI volumes require their driver in the cluster.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.capabilities import CSI_DRIVERS
from console.provisioners.kubernetes.rendering import files
from console.provisioners.kubernetes.rendering.containers import is_read_only
from console.provisioners.kubernetes.rendering.names import (
    FILES_DIR,
    base_labels,
    make_object,
    pod_of,
)
from console.provisioners.kubernetes.rendering.target import RenderingTarget
from console.provisioners.kubernetes.rendering.values import memory_quantity, merge_by_name
from console.provisioners.pods import Volume

_SHM, _TMP = "shm", "tmp"
# Shares have no size, but a claim must request one; the volume's size applies.
_SHARE_SIZE = "1Ti"
_SHARED = "ReadWriteMany"
_S3_DRIVER, _FOR_ALL = "s3.csi.aws.com", "allow-other"


def pod_volumes(spec: WorkloadSpec) -> list[dict[str, Any]]:
    pod = pod_of(spec)
    out: list[dict[str, Any]] = [files.files_volume(spec)]
    if is_read_only(spec):
        out.append({"name": _TMP, "emptyDir": {}})
    if pod.shm_bytes:
        room = {"medium": "Memory", "sizeLimit": memory_quantity(pod.shm_bytes)}
        out.append({"name": _SHM, "emptyDir": room})
    out += [{"name": volume.name, **_source(spec, volume)} for volume in pod.volumes]
    return merge_by_name(out, pod.volumes_raw)


def volume_mounts(spec: WorkloadSpec) -> list[dict[str, Any]]:
    pod = pod_of(spec)
    has_files = bool(spec.files or spec.live_files or spec.secret_files)
    out: list[dict[str, Any]] = [
        {"name": files.VOLUME, "mountPath": FILES_DIR, **_read_only(has_files)}
    ]
    if is_read_only(spec):
        out.append({"name": _TMP, "mountPath": "/tmp"})  # noqa: S108  (the pod's own)
    if pod.shm_bytes:
        out.append({"name": _SHM, "mountPath": "/dev/shm"})  # noqa: S108  (the pod's own)
    for volume in pod.volumes:
        if volume.path:
            sub_path = {"subPath": volume.sub_path} if volume.sub_path else {}
            out.append(
                {
                    "name": volume.name,
                    "mountPath": volume.path,
                    **_read_only(volume.read_only),
                    **sub_path,
                }
            )
    if pod.disks and not pod.stable:
        raise PermanentError(
            "BadSpec",
            f"Replicas of {spec.name!r} have a disk each, which requires stable replicas: "
            f"make the pod stable, or use a volume.",
        )
    out += [{"name": disk.name, "mountPath": disk.path} for disk in pod.disks]
    _check_paths(spec, out)
    return out


def claim_templates(spec: WorkloadSpec) -> list[dict[str, Any]]:
    """Return one disk claim per replica of a StatefulSet."""
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": disk.name, "labels": base_labels(spec)},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": memory_quantity(disk.size_bytes)}},
                **({"storageClassName": disk.storage_class} if disk.storage_class else {}),
            },
        }
        for disk in pod_of(spec).disks
    ]


def share_objects(spec: WorkloadSpec, target: RenderingTarget) -> list[dict[str, Any]]:
    """Return a PersistentVolume and claim for each share mounted through a CSI driver."""
    out = []
    for volume in pod_of(spec).volumes:
        driver = str((volume.source.get("csi") or {}).get("driver", ""))
        if driver in CSI_DRIVERS:
            target.need(CSI_DRIVERS[driver], f"Volume {volume.name!r} ({driver})")
        if _is_share(volume):
            out += _share(spec, target, volume)
    return out


def mounted_claims(pods: Iterable[Mapping[str, Any]], namespace: str) -> frozenset[str]:
    """Return the claims mounted by these pods and their cluster-wide volumes."""
    claims = {
        volume["persistentVolumeClaim"]["claimName"]
        for pod in pods
        for volume in pod["spec"].get("volumes") or ()
        if "persistentVolumeClaim" in volume
    }
    return frozenset({*claims, *(f"{namespace}.{claim}" for claim in claims)})


def _is_share(volume: Volume) -> bool:
    return bool((volume.source.get("csi") or {}).get("volumeHandle"))


def _share(spec: WorkloadSpec, target: RenderingTarget, volume: Volume) -> list[dict[str, Any]]:
    claim = _claim_name(spec, volume)
    # Volumes are cluster-wide: include the namespace, which contains no dot, to keep names unique.
    name = f"{target.namespace}.{claim}"
    volume_spec = {"capacity": {"storage": _SHARE_SIZE}, "accessModes": [_SHARED], **volume.source}
    csi = volume_spec["csi"]
    if csi.get("driver") == _S3_DRIVER:
        # A bucket is mounted by root; our processes run as another user.
        volume_spec["mountOptions"] = list(
            dict.fromkeys([*volume_spec.get("mountOptions", ()), _FOR_ALL])
        )
        # The handle is arbitrary (the bucket is an attribute) but must be unique: the kubelet
        # mounts two volumes with the same handle once, giving a new pod an old pod's folder.
        volume_spec["csi"] = {**csi, "volumeHandle": f"{csi['volumeHandle']}.{name}"}
    body = {
        **volume_spec,
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": claim}
        | {"namespace": target.namespace},
    }
    claim_spec = {
        "accessModes": volume_spec["accessModes"],
        "resources": {"requests": dict(volume_spec["capacity"])},
        "storageClassName": "",
        "volumeName": name,
    }
    return [
        make_object(spec, "", kinds.PERSISTENT_VOLUME, {"spec": body}, name=name),
        make_object(spec, target.namespace, kinds.CLAIM, {"spec": claim_spec}, name=claim),
    ]


def _source(spec: WorkloadSpec, volume: Volume) -> Mapping[str, Any]:
    if not _is_share(volume):
        return volume.source
    claimed = {"claimName": _claim_name(spec, volume), **_read_only(volume.read_only)}
    return {"persistentVolumeClaim": claimed}


def _claim_name(spec: WorkloadSpec, volume: Volume) -> str:
    """Include the source in the name: a volume's source is immutable, and pods of both revisions
    run side by side during a rollout.
    """
    text = json.dumps(volume.source, sort_keys=True, default=str)
    return f"{spec.name}-{volume.name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _read_only(yes: bool) -> dict[str, Any]:
    return {"readOnly": True} if yes else {}


def _check_paths(spec: WorkloadSpec, mounted: list[dict[str, Any]]) -> None:
    paths = set()
    for mount in mounted:
        path = str(mount["mountPath"]).rstrip("/")
        if path in paths or path.startswith(f"{FILES_DIR}/"):
            raise PermanentError(
                "BadSpec",
                f"Volume {mount['name']!r} of {spec.name!r} cannot be mounted at {path!r}: "
                f"the path is in use. Choose another one.",
            )
        paths.add(path)
