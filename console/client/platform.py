"""Clusters, watched namespaces, cache tiers, instance types and metrics sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from console.client import documents
from console.client.http import Document, ObjectClient, ResourceClient


class Clusters(ObjectClient[documents.Cluster]):
    path = "clusters/"

    def add(self, name: str, facts: Mapping[str, Any]) -> documents.Cluster:
        return self.create({"name": name, **facts})

    def check(self, name: str) -> documents.Cluster:
        """Check the cluster now and wait for the result."""
        answer = self.http.send("POST", self._at(name, "check"), params={"wait": True})
        return cast(documents.Cluster, answer.body)

    def role(self, name: str, *, namespace: str = "", follow: bool = False) -> str:
        """Return YAML of the Role with the missing rights, or of a full one for a namespace or
        `follow`.
        """
        params = {"namespace": namespace, **({"follow": True} if follow else {})}
        return self.http.text(self._at(name, "role"), params)

    def remove(self, name: str) -> None:
        self.delete(name)


class Follows(ResourceClient):
    path = "follows/"

    def list(self) -> Iterator[Document]:
        return self.http.pages(self.path)

    def add(self, cluster: str, namespace: str, *, foreign: bool = False) -> Document:
        data = {"cluster": cluster, "namespace": namespace, "foreign": foreign}
        return self._send("POST", self.path, data, once=True)

    def remove(self, follow_id: str) -> None:
        self.http.send("DELETE", self._at(follow_id))


class CacheTiers(ResourceClient):
    path = "cache-tiers/"

    def list(self) -> Iterator[documents.CacheTier]:
        return cast(Iterator[documents.CacheTier], self.http.pages(self.path))

    def get(self, name: str) -> documents.CacheTier:
        return cast(documents.CacheTier, self.http.get(self._at(name)))

    def create(self, name: str, facts: Mapping[str, Any], *, dry_run: bool = False) -> Any:
        params = {"dry_run": True} if dry_run else {}
        data = {"name": name, **facts}
        return self.http.send("POST", self.path, data, params=params, once=True).body

    def change(self, name: str, facts: Mapping[str, Any], *, dry_run: bool = False) -> Any:
        params = {"dry_run": True} if dry_run else {}
        return self.http.send("PATCH", self._at(name), facts, params=params).body

    def delete(self, name: str) -> Any:
        return self.http.send("DELETE", self._at(name)).body

    def contents(self, name: str) -> Document:
        return self._get(self._at(name, "contents"))

    def flush(self, name: str, namespace: str = "") -> int:
        """Return the number of values deleted; "" selects every namespace."""
        return int(self._send("POST", self._at(name, "flush"), {"namespace": namespace})["dropped"])


class InstanceTypes(ObjectClient[documents.InstanceType]):
    path = "instance-types/"

    def forget(self, name: str) -> None:
        """Delete the settings; a built-in type returns to its defaults."""
        self.delete(name)


class MetricsSources(ObjectClient[Document]):
    path = "metrics-sources/"

    def add(self, name: str, facts: Mapping[str, Any]) -> Document:
        return self.create({"name": name, **facts})

    def test(self, name: str) -> Document:
        """Test the source now, for at most about ten seconds."""
        return self._send("POST", self._at(name, "test"))

    def remove(self, name: str) -> None:
        self.delete(name)
