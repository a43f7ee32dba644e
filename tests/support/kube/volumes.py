"""Volumes of a pod as local folders with contents from the API.

Files change atomically, as with a kubelet: a new folder behind one link.
"""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.kube.client import Kube

Files = dict[str, bytes]


def local(text: str, address: str) -> str:
    """Replace the wildcard address by the pod's: all pods share this machine's network."""
    return text.replace("0.0.0.0", address).replace("tcp://*:", f"tcp://{address}:")


class Volumes:
    def __init__(self, api: Kube, pod: Mapping[str, Any], folder: Path, address: str) -> None:
        self._api, self._pod, self._folder, self._address = api, pod, folder, address
        self._namespace = pod["metadata"]["namespace"]
        self._claims = folder.parent / "claims"
        self._token_until = 0.0
        self._written: dict[str, Files] = {}

    def folder(self, name: str) -> Path:
        """Return the path of the volume's content."""
        volume = self._volume(name)
        if "persistentVolumeClaim" in volume:
            claim = volume["persistentVolumeClaim"]["claimName"]
            return self._claims / self._namespace / claim
        return self._folder / "volumes" / name

    def _volume(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = next(
            item for item in self._pod["spec"].get("volumes", ()) if item["name"] == name
        )
        return found

    def sync(self, pod: Mapping[str, Any]) -> None:
        """Update all volumes; raise if something is missing."""
        self._pod = pod
        for volume in pod["spec"].get("volumes", ()):
            self.folder(volume["name"]).mkdir(parents=True, exist_ok=True)
            files = self._files(volume)
            if files is not None and files != self._written.get(volume["name"]):
                _write(self.folder(volume["name"]), files)
                self._written[volume["name"]] = files

    def _files(self, volume: Mapping[str, Any]) -> Files | None:
        """Return None for a plain folder."""
        if "projected" in volume:
            found: Files = {}
            for source in volume["projected"]["sources"]:
                found |= self._source(source, volume["name"])
            return found
        for kind in ("configMap", "secret", "downwardAPI"):
            if kind in volume:
                return self._source({kind: volume[kind]}, volume["name"])
        return None

    def _source(self, source: Mapping[str, Any], name: str) -> Files:
        if "configMap" in source:
            return self._keys("ConfigMap", source["configMap"], "name")
        if "secret" in source:
            key = "name" if "name" in source["secret"] else "secretName"
            return self._keys("Secret", source["secret"], key)
        if "serviceAccountToken" in source:
            path = source["serviceAccountToken"]["path"]
            return {path: self._token(source["serviceAccountToken"], name, path)}
        found = {}
        for item in source["downwardAPI"]["items"]:
            text = field(self._pod, item["fieldRef"]["fieldPath"], self._address)
            found[item["path"]] = text.encode()
        return found

    def _keys(self, kind: str, body: Mapping[str, Any], key: str) -> Files:
        if body.get("optional"):
            data = self._api.find(kind, self._namespace, body[key])
        else:
            data = self._api.get(kind, self._namespace, body[key])
        content = contents(data or {})
        if kind == "ConfigMap":
            content = {k: local(v.decode(), self._address).encode() for k, v in content.items()}
        if body.get("items"):
            return {item["path"]: content[item["key"]] for item in body["items"]}
        return content

    def _token(self, content: Mapping[str, Any], name: str, path: str) -> bytes:
        if time.time() < self._token_until:
            return self._written[name][path]
        account = self._pod["spec"].get("serviceAccountName", "default")
        lasts = content.get("expirationSeconds", 3600)
        spec = {"expirationSeconds": lasts, "audiences": []}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        where = self._api.path("ServiceAccount", self._namespace, account, "token")
        self._token_until = time.time() + lasts * 0.8
        return str(self._api.ask("POST", where, body)["status"]["token"]).encode()


def contents(data: Mapping[str, Any]) -> Files:
    """Return the files of a ConfigMap or Secret."""
    if data.get("kind") == "Secret":
        return {key: base64.b64decode(text) for key, text in (data.get("data") or {}).items()}
    return {key: text.encode() for key, text in (data.get("data") or {}).items()}


def field(pod: Mapping[str, Any], path: str, address: str) -> str:
    """Return a field of the downward API."""
    metadata = pod["metadata"]
    if path == "status.podIP":
        return address
    for part in ("labels", "annotations"):
        if path.startswith(f"metadata.{part}["):
            return str(metadata.get(part, {}).get(path.split("'")[1], ""))
        if path == f"metadata.{part}":
            return "\n".join(f'{k}="{v}"' for k, v in sorted(metadata.get(part, {}).items()))
    found: Any = pod
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, Mapping) else ""
    return str(found)


def _write(folder: Path, files: Files) -> None:
    new = folder / f"..{time.time_ns()}"
    for name, content in files.items():
        path = new / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        link = folder / name.partition("/")[0]
        if not link.is_symlink():
            link.symlink_to(f"..data/{link.name}")
    new.mkdir(exist_ok=True)
    part = folder / "..data_tmp"
    part.unlink(missing_ok=True)
    part.symlink_to(new.name)
    data = folder / "..data"
    old = data.resolve() if data.is_symlink() else None
    part.rename(data)
    for path in folder.iterdir():
        if path.is_symlink() and not path.name.startswith("..") and not path.exists():
            path.unlink()
    if old is not None:
        shutil.rmtree(old)
