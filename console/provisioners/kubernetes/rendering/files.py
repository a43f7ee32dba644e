"""Files and secret variables of a workload: a ConfigMap, two Secrets, and the file volume.

Secrets are stored in Secrets only, and a change of content alone changes no pod.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.rendering.names import (
    env_name,
    files_name,
    make_object,
    replica_facts,
)
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets

VOLUME = "files"
_NOT_IN_KEYS = re.compile(r"[^A-Za-z0-9._-]")
# Readable by the process's group: the kubelet writes the files as root.
_MODE = 0o440


def file_objects(
    spec: WorkloadSpec, target: RenderingTarget, secrets: Secrets
) -> list[dict[str, Any]]:
    """Return the ConfigMap and Secrets, without empty ones."""
    plain, secret = contents(spec, secrets)
    variables = {name: _value(secrets.env, name, spec) for name in spec.secret_env}
    out = []
    if plain:
        data = {_key(path): text for path, text in plain.items()}
        name = files_name(spec.name)
        out.append(make_object(spec, target.namespace, kinds.CONFIG_MAP, {"data": data}, name=name))
    if secret:
        data = {_key(path): text for path, text in secret.items()}
        out.append(_secret(spec, target, files_name(spec.name), data))
    if variables:
        out.append(_secret(spec, target, env_name(spec.name), variables))
    return out


def contents(spec: WorkloadSpec, secrets: Secrets) -> tuple[dict[str, str], dict[str, str]]:
    """Return contents by path: readable with configuration rights, and secret."""
    plain: dict[str, str] = {}
    secret = {path: _value(secrets.files, path, spec) for path in spec.secret_files}
    filling = replica_facts(spec)
    for file in (*spec.files, *spec.live_files):
        if "{replica}" in file.content:
            raise PermanentError(
                "BadSpec",
                f"File {file.path!r} of {spec.name!r} differs by replica, but on Kubernetes all "
                f"replicas read the same file: pass {{replica}} as an argument or a variable.",
            )
        (secret if file.secret else plain)[file.path] = filling.fill(file.content)
    return plain, secret


def files_hash(spec: WorkloadSpec, secrets: Secrets) -> str:
    """Return 16 digits over all files; a change makes pods re-read them."""
    digest = hashlib.sha256()
    for part in contents(spec, secrets):
        for path, text in sorted(part.items()):
            digest.update(f"{len(path)} {path} {len(text)} {text}".encode())
    return digest.hexdigest()[:16]


def files_volume(spec: WorkloadSpec) -> dict[str, Any]:
    """Return the volume with all files in one folder; an empty folder if there are none."""
    files = (*spec.files, *spec.live_files)
    plain = [file.path for file in files if not file.secret]
    secret = [*spec.secret_files, *(file.path for file in files if file.secret)]
    if not plain and not secret:
        return {"name": VOLUME, "emptyDir": {}}
    sources = [
        {kind: {"name": files_name(spec.name), **_items(paths)}}
        for kind, paths in (("configMap", plain), ("secret", secret))
        if paths
    ]
    return {"name": VOLUME, "projected": {"defaultMode": _MODE, "sources": sources}}


def _items(paths: list[str]) -> dict[str, Any]:
    """Map paths explicitly only if one is not a valid key: otherwise new files need no new pod."""
    if all(_key(path) == path for path in paths):
        return {}
    return {"items": [{"key": _key(path), "path": path} for path in sorted(paths)]}


def _key(path: str) -> str:
    plain = _NOT_IN_KEYS.sub("-", path)
    if plain == path:
        return path
    return f"{plain}-{hashlib.sha256(path.encode()).hexdigest()[:8]}"


def _secret(
    spec: WorkloadSpec, target: RenderingTarget, name: str, data: Mapping[str, str]
) -> dict[str, Any]:
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    body = {"type": "Opaque", "data": encoded}
    return make_object(spec, target.namespace, kinds.SECRET, body, name=name)


def _value(read: Mapping[str, str], name: str, spec: WorkloadSpec) -> str:
    if name not in read:
        raise PermanentError(
            "MissingSecret",
            f"The secret {name!r} of {spec.name!r} could not be read. Check that its file exists.",
        )
    return read[name]
