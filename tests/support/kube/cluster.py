"""Cluster for a test: API, namespaces of its own, pod behavior.

The same for every kind of plane. A test's namespaces and nodes are removed afterwards.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.support.kube import nodes
from tests.support.kube.behaviours import PLAYER, parse
from tests.support.kube.client import Kube
from tests.support.waiting import until


class Ground(Protocol):
    """Interface common to all planes."""

    url: str

    @property
    def kubeconfig(self) -> Path: ...

    def kubeconfig_of(self, user: str, namespace: str = "default") -> Path: ...

    def client(self, user: str = "admin") -> Kube: ...


class Cluster:
    """`kind`: real, shared (real, run by another process) or fake. `plane` has the operations of
    one kind only (`stop_api`, `start_api`).
    """

    _numbers = itertools.count(1)

    def __init__(self, kind: str, plane: Ground) -> None:
        self.kind, self.plane = kind, plane
        self.api = plane.client()
        self._namespaces: list[str] = []
        self._nodes: list[str] = []

    @property
    def url(self) -> str:
        return self.plane.url

    @property
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig."""
        return self.plane.kubeconfig

    def namespace(self, **labels: str) -> str:
        """Create a namespace. Pod security labels: `**cluster.restricted`."""
        name = f"t-{os.getpid()}-{next(self._numbers)}"
        self.api.create("Namespace", "", {"metadata": {"name": name, "labels": labels}})
        self._namespaces.append(name)
        # Pods are rejected until the service account exists.
        until(lambda: self.api.find("ServiceAccount", name, "default"), what="default account")
        return name

    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}

    def rule(self, namespace: str, name: str = "rule", **rule: Any) -> None:
        """Set the behavior of pods in the namespace (behaviours.Rule); without fields the
        default."""
        parse(rule)
        data = {"metadata": {"name": PLAYER}, "data": {name: yaml.safe_dump(rule)}}
        self.api.apply("ConfigMap", namespace, data, manager=f"rule-{name}", force="true")

    def quota(self, namespace: str, name: str, **hard: str) -> None:
        """Create a quota and wait until it is enforced: a real one first counts usage."""
        data = {"metadata": {"name": name}, "spec": {"hard": hard}}
        self.api.create("ResourceQuota", namespace, data)
        until(
            lambda: self.api.get("ResourceQuota", namespace, name)["status"].get("used"),
            what=f"quota {name} counted",
        )

    def node(self, name: str, instance_type: str, **more: Any) -> str:
        """Add a ready node with a name unique to this test."""
        own = f"{name}-{os.getpid()}-{next(self._numbers)}"
        self.api.create("Node", "", nodes.node(own, instance_type, **more))
        self._nodes.append(own)
        until(lambda: _usable(self.api.get("Node", "", own)), what="node ready")
        return own

    def lose(self, node: str) -> None:
        """Lose the machine: its pods freeze without an update of their status."""
        self.api.merge("Node", "", node, {"metadata": {"annotations": {nodes.LOST: "true"}}})

    def bury(self, node: str) -> None:
        """Mark a lost node out of service, as an operator would; the cluster itself takes a
        minute."""
        self.api.delete("Node", "", node)
        for pod in self.api.list("Pod"):
            if pod["spec"].get("nodeName") == node:
                where = pod["metadata"]["namespace"], pod["metadata"]["name"]
                self.api.delete("Pod", *where, gracePeriodSeconds=0)

    def pods(self, namespace: str, labels: str = "") -> list[dict[str, Any]]:
        return self.api.list("Pod", namespace, labels)

    def tidy(self) -> None:
        for name in self._nodes:
            self.api.delete("Node", "", name)
        for name in self._namespaces:
            self.api.delete("Namespace", "", name)
        self._namespaces, self._nodes = [], []

    def close(self) -> None:
        self.tidy()
        self.api.close()


def _ready(data: dict[str, Any]) -> bool:
    conditions = data.get("status", {}).get("conditions", ())
    return any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)


def _usable(node: dict[str, Any]) -> bool:
    """Return whether the taint of new nodes has been removed."""
    taints = [item["key"] for item in node["spec"].get("taints", ())]
    return _ready(node) and not any(key.startswith("node.kubernetes.io/") for key in taints)


def ready(pod: dict[str, Any]) -> bool:
    return _ready(pod)
