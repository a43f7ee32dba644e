"""Survey of a cluster: capabilities with reasons, nodes, and the names it offers.

Read-only and within its reader's deadline; anything not visible is listed with the reason. Raises
`TemporaryError` or `PermanentError` only if the cluster as a whole is unreachable or rejects the
credentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from console.provisioners.base import PermanentError, TemporaryError
from console.provisioners.kubernetes.api import capabilities as known
from console.provisioners.kubernetes.api.access import ClusterAccess
from console.provisioners.kubernetes.api.reader import QueryFailed, Reader
from console.provisioners.kubernetes.discovery.inventory import (
    CapabilityFinding,
    Inventory,
    NodePool,
    Offers,
    pools,
)
from console.provisioners.kubernetes.discovery.rights import VERBS_OF_OWN, is_allowed

# API groups provided only by network plug-ins that enforce NetworkPolicy.
_ENFORCERS = {
    "crd.projectcalico.org": "Calico",
    "projectcalico.org": "Calico",
    "operator.tigera.io": "Calico",
    "cilium.io": "Cilium",
    "crd.antrea.io": "Antrea",
    "k8s.ovn.org": "OVN-Kubernetes",
    "networking.k8s.aws": "the VPC CNI's policy agent",
    "networking.gke.io": "GKE",
}
_BALANCERS = {"metallb.io": "MetalLB", "kube-vip.io": "kube-vip"}
_NO_CLOUD = ("", "kind", "minikube", "docker", "player")
_CRDS = {
    known.KEDA: ("keda.sh", "v1alpha1", "scaledobjects"),
    known.CERT_MANAGER: ("cert-manager.io", "v1", "certificates"),
    known.GATEWAY_API: ("gateway.networking.k8s.io", "v1", "httproutes"),
    known.PROMETHEUS_OPERATOR: ("monitoring.coreos.com", "v1", "podmonitors"),
}
# Served by a running pod, so a response proves that it works, not only that it was installed.
_SERVED = {
    known.KEDA: ("external.metrics.k8s.io", "v1beta1"),
    known.METRICS_SERVER: ("metrics.k8s.io", "v1beta1"),
}


def discover(access: ClusterAccess) -> Inventory:
    return ClusterSurvey(Reader(access)).run()


class ClusterSurvey:
    """One discovery pass; `notes` lists what was not visible and the consequence."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._notes: list[str] = []
        self.shares = False

    def run(self) -> Inventory:
        # Required: without these responses the cluster counts as unreachable.
        version = str(self._must("/version").get("gitVersion", ""))
        groups = {str(group["name"]): group for group in self._must("/apis").get("groups") or []}
        nodes = self._list("/api/v1/nodes", "instance types and GPUs are unknown")
        pools = self._pools(nodes)
        offers = self._offers(groups)
        findings = {
            finding.name: finding for finding in self._findings(groups, nodes, pools, offers)
        }
        ordered = tuple(findings[name] for name in known.CAPABILITIES)
        return Inventory(version, ordered, pools, offers, tuple(self._notes), self.shares)

    def _must(self, path: str) -> dict[str, Any]:
        try:
            return self._reader.get(path)
        except QueryFailed as error:
            if error.status == 404:
                text = "It does not respond like a Kubernetes API server"
                raise PermanentError("NotKubernetes", f"{text}: {error}.") from None
            if error.refused:
                text = f"The cluster denies discovery of {path}: {error}."
                remedy = "Bind this user to the ClusterRole system:discovery (the usual default)."
                raise PermanentError("ClusterRefused", f"{text} {remedy}") from None
            text = f"The cluster failed to return {path}: {error}."
            raise TemporaryError("ClusterBusy", text) from None

    def _list(self, path: str, lost: str, **query: str) -> list[dict[str, Any]] | None:
        """List objects; on failure add a note about the `lost` information and return None."""
        try:
            return list(self._reader.items(path, **query))
        except QueryFailed as error:
            if error.status == 404:
                return []
            may = "Emberline lacks permission to list it" if error.refused else str(error)
            self._notes.append(f"{path}: {may}; {lost}.")
            return None

    def _pools(self, nodes: list[dict[str, Any]] | None) -> tuple[NodePool, ...]:
        if not nodes:
            return ()
        if not any(pool.gpus for pool in pools(nodes, None)):
            return pools(nodes, ())
        running = "status.phase!=Succeeded,status.phase!=Failed"
        pods = self._list("/api/v1/pods", "free GPUs are unknown", fieldSelector=running)
        return pools(nodes, pods)

    def _offers(self, groups: Mapping[str, Any]) -> Offers:
        storage = self._list("/apis/storage.k8s.io/v1/storageclasses", "any name is accepted")
        issuers: tuple[str, ...] | None = ()
        gateways: tuple[str, ...] | None = ()
        if is_known_group(groups, known.CERT_MANAGER):
            issuers = self._issuers()
        if is_known_group(groups, known.GATEWAY_API):
            path = "/apis/gateway.networking.k8s.io/v1/gateways"
            gateways = _names(self._list(path, "any Gateway is accepted"), with_namespace=True)
        return Offers(
            _names(self._list("/api/v1/namespaces", "any namespace is accepted")),
            _names(storage),
            _default_class(storage),
            _names(
                self._list("/apis/networking.k8s.io/v1/ingressclasses", "any class is accepted")
            ),
            gateways,
            issuers,
            _names(
                self._list("/apis/scheduling.k8s.io/v1/priorityclasses", "any name is accepted")
            ),
        )

    def _issuers(self) -> tuple[str, ...] | None:
        base = "/apis/cert-manager.io/v1"
        wide = self._list(f"{base}/clusterissuers", "any issuer is accepted")
        narrow = self._list(f"{base}/issuers", "any issuer is accepted")
        if wide is None or narrow is None:
            return None
        return (
            *(f"ClusterIssuer/{name}" for name in _names(wide) or ()),
            *(f"Issuer/{name}" for name in dict.fromkeys(_names(narrow) or ())),
        )

    def _findings(
        self,
        groups: Mapping[str, Any],
        nodes: list[dict[str, Any]] | None,
        found: tuple[NodePool, ...],
        offers: Offers,
    ) -> Iterable[CapabilityFinding]:
        for name in _CRDS:
            yield self._crd(name, groups, offers)
        yield self._metrics_server(groups)
        yield _network_policy(groups)
        yield from self._drivers()
        yield from _gpus(nodes, found)
        yield _ingress(offers)
        yield _load_balancer(groups, nodes)

    def _crd(self, name: str, groups: Mapping[str, Any], offers: Offers) -> CapabilityFinding:
        group, version, resource = _CRDS[name]
        if group not in groups:
            return _absent(name, f"The cluster does not know {group}.")
        served = self._served(f"/apis/{group}/{version}")
        if isinstance(served, str) or resource not in served:
            text = served if isinstance(served, str) else f"it has no {resource}"
            return _absent(name, f"{group}/{version} does not serve {resource}: {text}.")
        if name == known.KEDA and _SERVED[name][0] in groups:
            answer = self._served("/apis/{}/{}".format(*_SERVED[name]))
            if isinstance(answer, str):
                why_not = f"KEDA is installed, but its metrics server does not respond: {answer}."
                return _absent(name, why_not)
        return _present(name, _detail(name, f"{group}/{version}", offers))

    def _metrics_server(self, groups: Mapping[str, Any]) -> CapabilityFinding:
        name = known.METRICS_SERVER
        group, version = _SERVED[name]
        if group not in groups:
            return _absent(name, f"The cluster does not know {group}.")
        served = self._served(f"/apis/{group}/{version}")
        if isinstance(served, str):
            return _absent(name, f"It is installed, but does not respond: {served}.")
        return _present(name, f"{group}/{version} answers")

    def _served(self, path: str) -> set[str] | str:
        """Return the resources of a group version, or the reason they are unknown."""
        try:
            document = self._reader.find(path)
        except QueryFailed as error:
            return str(error)
        if document is None:
            return "it is not served"
        return {str(resource["name"]) for resource in document.get("resources") or []}

    def _drivers(self) -> Iterable[CapabilityFinding]:
        """Report storage drivers, usable only with the right to create volumes for existing
        storage.
        """
        path = "/apis/storage.k8s.io/v1/csidrivers"
        listed = self._list(path, "models on S3, FSx and EFS are not available")
        names = set(_names(listed) or ())
        self.shares = not names.isdisjoint(known.CSI_DRIVERS)
        may = self.shares and self._may_make_volumes()
        for driver, name in known.CSI_DRIVERS.items():
            if listed is None:
                yield _absent(name, "Emberline lacks permission to list CSI drivers.")
            elif driver not in names:
                yield _absent(name, f"The cluster has no CSI driver {driver}.")
            elif not may:
                why_not = (
                    f"{driver} exists, but Emberline lacks permission to get, "
                    "list, create, patch and delete persistentvolumes, which are "
                    "cluster-scoped."
                )
                yield _absent(name, why_not)
            else:
                yield _present(name, driver)

    def _may_make_volumes(self) -> bool:
        try:
            return all(
                is_allowed(self._reader, verb, "", "persistentvolumes", "") for verb in VERBS_OF_OWN
            )
        except QueryFailed:
            return False


def is_known_group(groups: Mapping[str, Any], name: str) -> bool:
    return _CRDS[name][0] in groups


def _detail(name: str, served: str, offers: Offers) -> str:
    if name == known.CERT_MANAGER and offers.issuers is not None:
        return f"{served}, {_count(len(offers.issuers), 'issuer')}"
    if name == known.GATEWAY_API and offers.gateways is not None:
        return f"{served}, {_count(len(offers.gateways), 'Gateway')}"
    return served


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _network_policy(groups: Mapping[str, Any]) -> CapabilityFinding:
    plugin = next((label for group, label in _ENFORCERS.items() if group in groups), "")
    if plugin:
        return _present(known.NETWORK_POLICY, f"enforced by {plugin}")
    why_not = (
        "No network plug-in that is known to enforce NetworkPolicy was found. The "
        "policies are created, but may not be enforced."
    )
    return _absent(known.NETWORK_POLICY, why_not)


def _gpus(
    nodes: list[dict[str, Any]] | None, found: tuple[NodePool, ...]
) -> Iterable[CapabilityFinding]:
    for domain, name in known.GPU_DOMAINS.items():
        mine = [pool for pool in found if pool.gpu_resource.startswith(f"{domain}/")]
        if nodes is None:
            yield _unsure_finding(name, "nodes")
        elif not mine:
            yield _absent(name, f"No node offers {domain}/gpu.")
        else:
            total = sum(pool.gpus for pool in mine)
            free = [pool.gpus_free for pool in mine if pool.gpus_free is not None]
            text = f"{sum(free)} of {total} free" if len(free) == len(mine) else f"{total}"
            yield _present(name, text)


def _ingress(offers: Offers) -> CapabilityFinding:
    if offers.ingress_classes is None:
        return _unsure_finding(known.INGRESS, "ingress classes")
    if offers.ingress_classes:
        return _present(known.INGRESS, ", ".join(offers.ingress_classes))
    return _absent(known.INGRESS, "The cluster has no IngressClass.")


def _load_balancer(
    groups: Mapping[str, Any], nodes: list[dict[str, Any]] | None
) -> CapabilityFinding:
    name = known.LOAD_BALANCER
    for group, label in _BALANCERS.items():
        if group in groups:
            return _present(name, label)
    clouds = {
        str((node.get("spec") or {}).get("providerID", "")).partition("://")[0]
        for node in nodes or ()
    }
    for cloud in sorted(clouds):
        if cloud not in _NO_CLOUD:
            return _present(name, f"nodes of {cloud}")
    if nodes is None:
        return _unsure_finding(name, "nodes")
    return _absent(name, "Neither a cloud provider nor MetalLB was found.")


def _present(name: str, detail: str) -> CapabilityFinding:
    return CapabilityFinding(name, present=True, detail=detail)


def _absent(name: str, why_not: str) -> CapabilityFinding:
    return CapabilityFinding(name, present=False, why_not=why_not)


def _unsure_finding(name: str, what: str) -> CapabilityFinding:
    detail = f"Emberline lacks permission to list {what}; assumed present"
    return CapabilityFinding(name, present=True, detail=detail, unsure=True)


def _names(
    listed: list[dict[str, Any]] | None, *, with_namespace: bool = False
) -> tuple[str, ...] | None:
    if listed is None:
        return None
    metadata = [item["metadata"] for item in listed]
    return tuple(
        sorted(
            f"{fact['namespace']}/{fact['name']}" if with_namespace else str(fact["name"])
            for fact in metadata
        )
    )


def _default_class(listed: list[dict[str, Any]] | None) -> str:
    mark = "storageclass.kubernetes.io/is-default-class"
    for storage_class in listed or ():
        if (storage_class["metadata"].get("annotations") or {}).get(mark) == "true":
            return str(storage_class["metadata"]["name"])
    return ""
