"""Whether a cluster is gone, and what may be left there of something that is given up.

Promises that nothing is called gone which answers, in whatever way, or answered a moment ago: what
is given up by haste goes on running with nobody who knows of it. Removes nothing.
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
"""So long a cluster must not have answered: longer than a failover or a lost network takes."""
_GONE = frozenset({"ClusterUnreachable", "UnknownCluster"})
# As rendering.names.OWNER, which is not for this side of the waist.
_OWNER = "emberline.dev/owner"


@dataclass(frozen=True, slots=True)
class RemainingObjects:
    """What nobody removed, and how to find it there. `why` is how it was seen to be gone."""

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
            f"Nothing was removed in cluster {self.cluster}. Should it come back, whatever was in "
            f"its namespace {self.namespace} goes on there, with its keys. It carries the label "
            f"{self.selector}: {self.command}. To remove it: kubectl delete configmaps "
            f"-n {self.namespace} -l {self.selector} (what they own goes with them)."
        )


def left(cluster: str, namespace: str, owner: str, why: str = "") -> RemainingObjects:
    try:
        namespace = selectors.namespace(cluster, namespace)
    except ProvisionError:  # not known any more: its namespace is not, either
        namespace = namespace or "NAMESPACE"
    return RemainingObjects(cluster, namespace, owner, why)


def prove(cluster: str, ask: Callable[[], Any]) -> str:
    """Why it counts as gone; `Refused` while it is there. `ask` is a question to the cluster."""
    try:
        ask()
    except ProvisionError as error:
        if error.reason not in _GONE:
            raise _there(cluster, f"It answers: {error.message}") from error
        why = error.message
    else:
        raise _there(cluster, "It answers.")
    row = selectors.get(cluster)
    seen_at = row.status.seen_at if row is not None else None
    if seen_at is not None and timezone.now() - seen_at < timedelta(seconds=SILENT_FOR_S):
        ago = (timezone.now() - seen_at).total_seconds()
        raise _there(cluster, f"It answered {ago:.0f} s ago, and may only be away for a moment.")
    return why


def _there(cluster: str, why: str) -> Refused:
    return Refused(
        Problem(
            "abandon",
            True,
            f"Cluster {cluster} is not gone. {why}",
            "Delete without giving up, so that nothing is left there; if the cluster is silent, "
            f"wait until it has been for {SILENT_FOR_S // 60} minutes.",
            "cluster_there",
        ),
        status_code=409,
    )
