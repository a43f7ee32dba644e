"""Clusters, watched namespaces, cache tiers, instance types and metrics sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from console.client import documents
from console.client.endpoints import ResourceClient


class Clusters(ResourceClient):
    path = "clusters/"

    def list(self) -> Iterator[documents.Cluster]:
        return cast(Iterator[documents.Cluster], self.http.pages(self.path))

    def get(self, name: str) -> documents.Cluster:
        return cast(documents.Cluster, self.http.get(self._at(name)))

    def add(self, name: str, facts: Mapping[str, Any]) -> documents.Cluster:
        data = {"name": name, **facts}
        return cast(documents.Cluster, self.http.send("POST", self.path, data, once=True).body)

    def change(self, name: str, facts: Mapping[str, Any]) -> documents.Cluster:
        return cast(documents.Cluster, self.http.send("PATCH", self._at(name), facts).body)

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
        self.http.send("DELETE", self._at(name))


class Follows(ResourceClient):
    path = "follows/"

    def list(self) -> Iterator[dict[str, Any]]:
        return self.http.pages(self.path)

    def add(self, cluster: str, namespace: str, *, foreign: bool = False) -> dict[str, Any]:
        data = {"cluster": cluster, "namespace": namespace, "foreign": foreign}
        return cast(dict[str, Any], self.http.send("POST", self.path, data, once=True).body)

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

    def contents(self, name: str) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get(self._at(name, "contents")))

    def flush(self, name: str, namespace: str = "") -> int:
        """Return the number of values deleted; "" selects every namespace."""
        answer = self.http.send("POST", self._at(name, "flush"), {"namespace": namespace})
        return int(answer.body["dropped"])


class InstanceTypes(ResourceClient):
    path = "instance-types/"

    def list(self) -> Iterator[documents.InstanceType]:
        return cast(Iterator[documents.InstanceType], self.http.pages(self.path))

    def get(self, name: str) -> documents.InstanceType:
        return cast(documents.InstanceType, self.http.get(self._at(name)))

    def set(self, name: str, facts: Mapping[str, Any]) -> documents.InstanceType:
        """Create, or change the given fields."""
        return cast(documents.InstanceType, self.http.send("PUT", self._at(name), facts).body)

    def forget(self, name: str) -> None:
        """Delete the settings; a built-in type returns to its defaults."""
        self.http.send("DELETE", self._at(name))


class MetricsSources(ResourceClient):
    path = "metrics-sources/"

    def list(self) -> Iterator[dict[str, Any]]:
        return self.http.pages(self.path)

    def get(self, name: str) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.get(self._at(name)))

    def add(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        data = {"name": name, **facts}
        return cast(dict[str, Any], self.http.send("POST", self.path, data, once=True).body)

    def change(self, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
        return cast(dict[str, Any], self.http.send("PATCH", self._at(name), facts).body)

    def test(self, name: str) -> dict[str, Any]:
        """Test the source now, for at most about ten seconds."""
        return cast(dict[str, Any], self.http.send("POST", self._at(name, "test")).body)

    def remove(self, name: str) -> None:
        self.http.send("DELETE", self._at(name))
