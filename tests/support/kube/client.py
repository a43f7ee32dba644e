"""Kubernetes API client of tests: by kind and name, JSON, errors as exceptions.

Without retries.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

# kind -> (prefix, plural, namespaced)
KINDS: dict[str, tuple[str, str, bool]] = {}


def _know(prefix: str, namespaced: bool, *kinds: str) -> None:
    for word in kinds:
        kind, _, plural = word.partition("/")
        KINDS[kind] = (prefix, plural or kind.lower() + "s", namespaced)


_know("/api/v1", True, "Pod", "ConfigMap", "Secret", "Service", "ServiceAccount", "Event")
_know("/api/v1", True, "PersistentVolumeClaim", "ResourceQuota", "Endpoints/endpoints")
_know("/api/v1", False, "Namespace", "Node", "PersistentVolume")
_know("/apis/apps/v1", True, "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
_know("/apis/batch/v1", True, "Job", "CronJob")
_know("/apis/autoscaling/v2", True, "HorizontalPodAutoscaler")
_know("/apis/policy/v1", True, "PodDisruptionBudget")
_know("/apis/networking.k8s.io/v1", True, "NetworkPolicy/networkpolicies", "Ingress/ingresses")
_know("/apis/networking.k8s.io/v1", False, "IngressClass/ingressclasses")
_know("/apis/discovery.k8s.io/v1", True, "EndpointSlice")
_know("/apis/rbac.authorization.k8s.io/v1", True, "Role", "RoleBinding")
_know("/apis/rbac.authorization.k8s.io/v1", False, "ClusterRole", "ClusterRoleBinding")
_know("/apis/storage.k8s.io/v1", False, "StorageClass/storageclasses", "CSIDriver")
_know("/apis/coordination.k8s.io/v1", True, "Lease")
_know("/apis/apiextensions.k8s.io/v1", False, "CustomResourceDefinition")
_know("/apis/apiregistration.k8s.io/v1", False, "APIService")
_know("/apis/scheduling.k8s.io/v1", False, "PriorityClass/priorityclasses")
_know("/apis/keda.sh/v1alpha1", True, "ScaledObject", "TriggerAuthentication")
_know("/apis/cert-manager.io/v1", True, "Certificate", "Issuer")
_know("/apis/cert-manager.io/v1", False, "ClusterIssuer")
_know("/apis/gateway.networking.k8s.io/v1", True, "HTTPRoute", "Gateway")
_know("/apis/gateway.networking.k8s.io/v1", False, "GatewayClass/gatewayclasses")
_know("/apis/monitoring.coreos.com/v1", True, "PodMonitor", "ServiceMonitor", "PrometheusRule")
_know("/apis/monitoring.coreos.com/v1alpha1", True, "AlertmanagerConfig")


class Refused(AssertionError):
    """Error response; `code` is the HTTP status, `status` the whole response."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(f"{code} {status.get('reason', '')}: {status.get('message', status)}")
        self.code, self.status = code, status


class Kube:
    def __init__(self, url: str, token: str = "", ca: Path | None = None) -> None:
        context: ssl.SSLContext | bool = False
        if ca is not None:
            context = ssl.create_default_context(cafile=ca)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=10)
        self.http = httpx.Client(
            base_url=url, headers=headers, verify=context, timeout=30, limits=limits
        )

    def __enter__(self) -> Kube:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    def ready(self) -> bool:
        """Return whether the server is ready and has the default namespace."""
        try:
            return (
                self.http.get("/readyz").status_code == 200
                and self.http.get("/api/v1/namespaces/default").status_code == 200
            )
        except httpx.TransportError:
            return False

    @staticmethod
    def path(kind: str, namespace: str = "", name: str = "", sub: str = "") -> str:
        prefix, plural, namespaced = KINDS[kind]
        parts = [prefix]
        if namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/".join([*parts, plural, *filter(None, (name, sub))])

    def ask(self, method: str, path: str, body: Any = None, media: str = "", **query: Any) -> Any:
        headers = {"content-type": media or "application/json"}
        content = None if body is None else json.dumps(body)
        answer = self.http.request(
            method, path, content=content, params=query, headers=headers if content else {}
        )
        return _checked(answer)

    def get(self, kind: str, namespace: str, name: str, sub: str = "") -> Any:
        return self.ask("GET", self.path(kind, namespace, name, sub))

    def find(self, kind: str, namespace: str, name: str) -> Any:
        """Return None if it does not exist."""
        try:
            return self.get(kind, namespace, name)
        except Refused as refused:
            if refused.code == 404:
                return None
            raise

    def list(self, kind: str, namespace: str = "", labels: str = "") -> list[dict[str, Any]]:
        query = {"labelSelector": labels} if labels else {}
        items: list[dict[str, Any]] = self.ask("GET", self.path(kind, namespace), **query)["items"]
        return items

    def create(self, kind: str, namespace: str, data: dict[str, Any], **query: Any) -> Any:
        return self.ask("POST", self.path(kind, namespace), _typed(kind, data), **query)

    def replace(self, kind: str, namespace: str, data: dict[str, Any], sub: str = "") -> Any:
        path = self.path(kind, namespace, data["metadata"]["name"], sub)
        return self.ask("PUT", path, _typed(kind, data))

    def merge(self, kind: str, namespace: str, name: str, patch: Any, sub: str = "") -> Any:
        path = self.path(kind, namespace, name, sub)
        return self.ask("PATCH", path, patch, "application/merge-patch+json")

    def apply(
        self, kind: str, namespace: str, data: dict[str, Any], manager: str = "test", **query: Any
    ) -> Any:
        """Server-side apply; `force`, `dryRun`, `fieldValidation` as in the API."""
        path = self.path(kind, namespace, data["metadata"]["name"])
        media = "application/apply-patch+yaml"
        return self.ask("PATCH", path, _typed(kind, data), media, fieldManager=manager, **query)

    def delete(self, kind: str, namespace: str, name: str, **options: Any) -> Any:
        """Ignore missing objects. `options` as in DeleteOptions."""
        try:
            return self.ask("DELETE", self.path(kind, namespace, name), options or None)
        except Refused as refused:
            if refused.code != 404:
                raise

    @contextmanager
    def stream(self, path: str, query: dict[str, str]) -> Iterator[Iterator[dict[str, Any]]]:
        """Yield the events of a watch until the server ends it."""
        with self.http.stream(
            "GET", path, params=query, timeout=httpx.Timeout(30, read=None)
        ) as answer:
            if answer.status_code != 200:
                answer.read()
                _checked(answer)
            yield (json.loads(line) for line in answer.iter_lines() if line)


def _typed(kind: str, data: dict[str, Any]) -> dict[str, Any]:
    prefix = KINDS[kind][0]
    version = prefix.removeprefix("/apis/").removeprefix("/api/")
    return {"apiVersion": version, "kind": kind, **data}


def _checked(answer: httpx.Response) -> Any:
    try:
        data = answer.json()
    except ValueError:
        data = answer.text
    if answer.status_code >= 400:
        raise Refused(answer.status_code, data if isinstance(data, dict) else {"message": data})
    return data
