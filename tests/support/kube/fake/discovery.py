"""Discovery: /version, /api, /apis and the resources of each version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.support.kube.fake.store import Resource

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.2-fake",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def answer(path: str, resources: Iterable[Resource]) -> dict[str, Any] | None:
    """Return None for URLs outside discovery."""
    known = list(resources)
    prefixes = sorted({resource.prefix for resource in known})
    if path.rstrip("/") == "/version":
        return dict(VERSION)
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        groups = sorted({p.split("/")[2] for p in prefixes if p.startswith("/apis/")})
        found = [_group(name, prefixes) for name in groups]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}
    if path.startswith("/apis/") and path.count("/") == 2:
        name = path.split("/")[2]
        group = _group(name, prefixes)
        return {"kind": "APIGroup", "apiVersion": "v1", **group} if group["versions"] else None
    if path in prefixes:
        items = [item for r in known if r.prefix == path for item in _listed(r)]
        version = path.removeprefix("/apis/").removeprefix("/api/")
        head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version}
        return {**head, "resources": items}
    return None


def _group(name: str, prefixes: list[str]) -> dict[str, Any]:
    versions = [
        {"groupVersion": f"{name}/{p.split('/')[3]}", "version": p.split("/")[3]}
        for p in prefixes
        if p.startswith(f"/apis/{name}/")
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[-1:] and versions[-1]}


def _listed(resource: Resource) -> list[dict[str, Any]]:
    one = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": VERBS,
    }
    subs = [name for name in ("status", "scale") if getattr(resource, name)]
    more = [
        {**one, "name": f"{resource.plural}/{sub}", "verbs": ["get", "patch", "update"]}
        for sub in subs
    ]
    return [one, *more]
