"""Kubeconfig files with one cluster, one context and a token."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml


def kubeconfig(
    url: str, ca: Path | None, token: str, namespace: str = "default", user: str = "user"
) -> dict[str, Any]:
    cluster: dict[str, Any] = {"server": url}
    if ca is not None:
        cluster["certificate-authority-data"] = base64.b64encode(ca.read_bytes()).decode()
    context = {"cluster": "test", "user": user, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }


def write(path: Path, data: dict[str, Any]) -> Path:
    """Write atomically: others wait for the file."""
    part = path.with_name(path.name + ".part")
    part.write_text(yaml.safe_dump(data))
    part.chmod(0o600)
    return part.rename(path)
