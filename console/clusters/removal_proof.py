"""Proof that a cluster is gone, and the objects that may remain in it.

A cluster that responds in any way, or did so recently, is not gone: objects abandoned too early
would keep running unmanaged. Deletes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from console.clusters import selectors
from console.core.errors import Problem, Refused
from console.provisioners.base import ProvisionError

SILENT_FOR_S = 120
"""Required silence of a cluster, above the duration of a failover or network outage."""
_GONE = frozenset({"ClusterUnreachable", "UnknownCluster"})
# Equals rendering.names.OWNER, which this package may not import.
_OWNER = "emberline.dev/owner"


@dataclass(frozen=True, slots=True)
class RemainingObjects:
    """Objects that were not deleted and how to find them; `why` is the proof of removal."""

    cluster: str
    namespace: str
    owner: str
    why: str = ""

    @property
    def selector(self) -> str:
        return f"{_OWNER}={self.owner.replace('/', '.')}"

    @property
    def command(self) -> str:
        kinds = "all,configmaps,secrets,persistentvolumeclaims"
        return f"kubectl get {kinds} -n {self.namespace} -l {self.selector}"

    @property
    def message(self) -> str:
        return (
            f"Nothing was removed in cluster {self.cluster}. If the cluster returns, the objects "
            "in its namespace {self.namespace} goes on there, with its keys. It carries the label "
            f"{self.selector}: {self.command}. To remove it: kubectl delete configmaps "
            f"-n {self.namespace} -l {self.selector} (what they own goes with them)."
        )


def list_remaining(cluster: str, namespace: str, owner: str, why: str = "") -> RemainingObjects:
    try:
        namespace = selectors.namespace(cluster, namespace)
    except ProvisionError:  # cluster row deleted, namespace unknown
        namespace = namespace or "NAMESPACE"
    return RemainingObjects(cluster, namespace, owner, why)


def prove_removal(cluster: str, ask: Callable[[], Any]) -> str:
    """Return why the cluster counts as gone; raise `Refused` if the query `ask` gets a response."""
    try:
        ask()
    except ProvisionError as error:
        if error.reason not in _GONE:
            raise _still_there_error(cluster, f"It responds: {error.message}") from error
        why = error.message
    else:
        raise _still_there_error(cluster, "It responds.")
    row = selectors.get(cluster)
    seen_at = row.status.seen_at if row is not None else None
    if seen_at is not None and timezone.now() - seen_at < timedelta(seconds=SILENT_FOR_S):
        ago = (timezone.now() - seen_at).total_seconds()
        raise _still_there_error(cluster, f"It responded {ago:.0f} s ago; the outage may be brief.")
    return why


def _still_there_error(cluster: str, why: str) -> Refused:
    return Refused(
        Problem(
            "abandon",
            True,
            f"Cluster {cluster} cannot be abandoned. {why}",
            "Delete without abandoning, so that nothing is left there; an "
            f"unreachable cluster can be abandoned after {SILENT_FOR_S // 60} "
            "minutes.",
            "cluster_there",
        ),
        status_code=409,
    )
