"""Kubernetes requests for alert objects: apply, remove, find duplicate rule groups.

Requests raise `ProvisionError` only. Objects of other owners are neither written nor removed, and
no value of a Secret appears in a message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from console.provisioners.base import PermanentError, TemporaryError
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.capabilities import PROMETHEUS_OPERATOR
from console.provisioners.kubernetes.api.client import Access, Json, KubernetesClient
from console.provisioners.kubernetes.api.kinds import ObjectKind
from console.provisioners.kubernetes.workload.drift import find_drift
from dashboards.alerts.alertmanager.config import document as alertmanager_config
from dashboards.alerts.cluster_objects.objects.manifests import DIGEST, is_ours
from dashboards.alerts.rules.rule_file import GROUPS, OWN_GROUP

Item = tuple[str, str, str]  # kind, namespace, name
CONFIG: Final = ObjectKind(
    alertmanager_config.VERSION,
    alertmanager_config.KIND,
    "alertmanagerconfigs",
    PROMETHEUS_OPERATOR,
)
RULE: Final = kinds.kind_of({"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule"})
_KINDS: Final = {kind.kind: kind for kind in (CONFIG, RULE, kinds.SECRET)}
_SHOWN = 4


class Objects:
    """Alert objects owned by the installation `install`."""

    def __init__(self, access: Access, install: str) -> None:
        self._access, self._install = access, install

    def put(self, body: Json, *, known: bool) -> list[str]:
        """Apply the object and return the foreign changes that this reverted.

        `known`: the previous pass left it in this state.
        """
        client, kind = self._client(body["metadata"]["namespace"]), _KINDS[body["kind"]]
        name = str(body["metadata"]["name"])
        live = client.get(kind, name)
        if live is None:
            client.apply(body, force=True, kind=kind)
            return [f"{kind.kind}/{name} was deleted"] if known else []
        self._expect_ours(live, kind, client.namespace)
        stale = _stale(body, live)
        changed = [
            difference for difference in find_drift(body, live) if difference.manager or not stale
        ]
        if stale or changed:
            client.apply(body, force=True, kind=kind)
        owners = [
            f"{difference.path} by {difference.manager or 'somebody'}"
            for difference in changed[:_SHOWN]
        ]
        more = [f"{len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
        return [f"{kind.kind}/{name}: {', '.join([*owners, *more])}"] if changed else []

    def remove(self, items: Iterable[Item]) -> set[Item]:
        """Delete the objects and return those still present: deletion takes a moment."""
        left = set()
        for item in sorted(items):
            kind_name, namespace, name = item
            if self._remove(self._client(namespace), _KINDS[kind_name], name):
                left.add(item)
        return left

    def _remove(self, client: KubernetesClient, kind: ObjectKind, name: str) -> bool:
        live = client.get(kind, name)
        if live is None or not is_ours(live, self._install):
            return False
        client.delete(kind, name, uid=str(live["metadata"].get("uid", "")))
        return client.get(kind, name) is not None

    def twins(self, namespace: str) -> list[str]:
        """Return foreign PrometheusRules that contain groups with our names."""
        groups = {*GROUPS, OWN_GROUP}
        return sorted(
            f"PrometheusRule/{rule['metadata']['name']}"
            for rule in self._client(namespace).listed(RULE)
            if not is_ours(rule, self._install)
            and groups & {group["name"] for group in (rule.get("spec") or {}).get("groups") or ()}
        )

    def _client(self, namespace: str) -> KubernetesClient:
        return KubernetesClient(self._access, namespace)

    def _expect_ours(self, found: Json, kind: ObjectKind, namespace: str) -> None:
        name = f"{kind.kind}/{found['metadata']['name']}"
        if not is_ours(found, self._install):
            text = f"{name} in {namespace} is owned by another console or was created manually."
            remedy = "Choose another namespace, or remove that object."
            raise PermanentError("NotOurs", f"{text} {remedy}")
        if "deletionTimestamp" in found["metadata"]:
            raise TemporaryError("StillStopping", f"{name} is being deleted.")


def _stale(body: Json, found: Json) -> bool:
    """Return whether the desired state has changed since the object was written."""
    if body["kind"] == "Secret":
        return bool((found.get("data") or {}) != body["data"])
    notes: dict[str, Any] = found["metadata"].get("annotations") or {}
    return notes.get(DIGEST) != body["metadata"]["annotations"][DIGEST]
