"""Queries on clusters for pages, REST and other apps.

Results are plain values; the number of queries does not grow with the rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.conf import settings
from django.db.models import QuerySet

from console.accounts import gate
from console.accounts.permissions import Somebody
from console.clusters.choices import ClusterReason
from console.clusters.models import Cluster
from console.core import uses
from console.provisioners import registry
from console.provisioners.base import PermanentError, Provisioner
from console.provisioners.kubernetes.api.access import IN_CLUSTER, ClusterAccess, own_namespace
from console.provisioners.kubernetes.discovery.inventory import CapabilityFinding, Inventory
from console.provisioners.kubernetes.discovery.rights import GrantedRights
from console.vault import encryption


@dataclass(frozen=True, slots=True)
class ClusterDetail:
    cluster: Cluster
    inventory: Inventory
    granted: GrantedRights
    users: list[str]

    @property
    def gpus(self) -> int:
        return sum(pool.gpus for pool in self.inventory.pools)

    @property
    def gpus_free(self) -> int | None:
        """Return the free GPUs; None if Emberline may not list pods."""
        free = [pool.gpus_free for pool in self.inventory.pools if pool.gpus]
        return None if None in free else sum(count or 0 for count in free)

    @property
    def nodes(self) -> int:
        return sum(pool.nodes for pool in self.inventory.pools)

    @property
    def nodes_ready(self) -> int:
        return sum(pool.ready for pool in self.inventory.pools)

    @property
    def present(self) -> list[CapabilityFinding]:
        return [finding for finding in self.inventory.findings if finding.present]


def default_cluster() -> str:
    """Return the cluster of endpoints that name none; "" is this machine."""
    return IN_CLUSTER if settings.EMBERLINE.provisioner == "kubernetes" else ""


def provisioner(cluster: str = "", namespace: str = "") -> Provisioner:
    """Return the provisioner of a cluster and namespace.

    "" means the default cluster (this machine, unless Kubernetes is configured) and the cluster's
    default namespace. Raises `PermanentError` for an unknown cluster or an unreadable kubeconfig.
    """
    name = cluster or default_cluster()
    if not name:
        return registry.get_provisioner(settings.EMBERLINE.provisioner, settings.EMBERLINE.var)
    placement = _find_placement(name)
    # Lazy: it imports the Kubernetes client, which a single-machine console does not need.
    from console.provisioners.kubernetes.provisioner import KubernetesProvisioner

    return KubernetesProvisioner(
        placement.access, namespace or placement.namespace, placement.capabilities
    )


def inventory(cluster: str = "") -> Inventory | None:
    """Return the last inventory; None for this machine and before the first response."""
    row = get(cluster or default_cluster())
    return row.inventory if row is not None and row.status.seen_at is not None else None


def capabilities(cluster: str = "") -> frozenset[str] | None:
    """Return the capability names (provisioners.kubernetes.api.capabilities); None if unknown."""
    survey = inventory(cluster)
    return None if survey is None else survey.capabilities


def missing_reason(cluster: str, capability: str) -> str:
    """Return why the capability is missing and the fix; "" if present or unknown."""
    survey = inventory(cluster)
    for finding in survey.findings if survey is not None else ():
        if finding.name == capability and not finding.present:
            return f"{finding.why_not} {finding.remedy}"
    return ""


def namespace(cluster: str, wanted: str = "") -> str:
    """Return the effective namespace; "" on this machine. Raises like `provisioner`."""
    if not cluster:
        return ""
    return wanted or _find_placement(cluster).namespace


def details(viewer: Somebody = None) -> list[ClusterDetail]:
    by_cluster = visible_users(viewer)
    return [_detail(row, by_cluster.get(row.name, [])) for row in clusters()]


def detail(cluster: Cluster, viewer: Somebody = None) -> ClusterDetail:
    return _detail(cluster, visible_users(viewer).get(cluster.name, []))


def visible_users(viewer: Somebody) -> dict[str, list[str]]:
    """Return the users of each cluster, limited to what the viewer may view."""
    return {
        name: gate.filter_references(users, viewer)
        for name, users in uses.by_name("cluster").items()
    }


def _detail(cluster: Cluster, users: list[str]) -> ClusterDetail:
    return ClusterDetail(cluster, cluster.inventory, cluster.granted, users)


def clusters() -> QuerySet[Cluster]:
    return Cluster.objects.select_related("status").prefetch_related("watches")


def existing(wanted: Collection[str], _viewer: object = None) -> Collection[str]:
    return set(Cluster.objects.filter(name__in=wanted).values_list("name", flat=True))


def names() -> list[str]:
    clusters = Cluster.objects.values_list("name", flat=True)
    return sorted({*clusters, *filter(None, [default_cluster()])})


def get(name: str) -> Cluster | None:
    return Cluster.objects.select_related("status").filter(name=name).first()


def access(name: str) -> tuple[ClusterAccess, str]:
    """Return the cluster's credentials and default namespace. Raises like `provisioner`."""
    placement = _find_placement(name)
    return placement.access, placement.namespace


@dataclass(frozen=True, slots=True)
class _Placement:
    """Placement of a cluster; `capabilities` None: not known yet."""

    access: ClusterAccess
    namespace: str
    capabilities: frozenset[str] | None = None


def _find_placement(name: str) -> _Placement:
    """Return the placement; the cluster the console runs in needs no row."""
    row = get(name)
    if row is None and name == default_cluster():
        return _Placement(ClusterAccess(IN_CLUSTER), own_namespace())
    if row is None:
        valid_names = ", ".join(names()) or "none yet"
        text = f"Cluster {name!r} does not exist. Available: {valid_names}. Add it under Clusters."
        raise PermanentError("UnknownCluster", text)
    try:
        reached = row.access()
    except encryption.Unreadable as error:
        raise PermanentError(ClusterReason.KEY_MISSING, f"Cluster {name}: {error}") from None
    capabilities = row.inventory.capabilities if row.status.seen_at is not None else None
    return _Placement(reached, row.namespace, capabilities)
