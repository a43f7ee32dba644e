"""Extra privileges an administrator may grant to a team's endpoints."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Grant(StrEnum):
    SECRETS = "secrets"
    SERVICE_ACCOUNTS = "service-accounts"
    STORAGE = "storage"
    SCHEDULING = "scheduling"
    ANNOTATIONS = "annotations"
    HOST = "host"
    MACHINE = "machine"


LABELS = {
    Grant.SECRETS: "Secrets and ConfigMaps of the namespace",
    Grant.SERVICE_ACCOUNTS: "Service accounts of the namespace",
    Grant.STORAGE: "Volume claims, buckets and file systems",
    Grant.SCHEDULING: "Priority classes, tolerations and schedulers",
    Grant.ANNOTATIONS: "Annotations which controllers of the cluster read",
    Grant.HOST: "Anything a pod can be: host paths, privileges, any volume",
    Grant.MACHINE: "Files and code of the console's machine: model folders, worker arguments",
}
ALL_GRANTS = frozenset(Grant)
NAMESPACE_GRANTS = frozenset({Grant.SECRETS, Grant.SERVICE_ACCOUNTS, Grant.STORAGE})
"""Grants implied by the right to create pods in a namespace."""


def parse_grants(names: Iterable[str]) -> frozenset[Grant]:
    """Return the grants among stored names; names of later versions are ignored."""
    return frozenset(Grant(name) for name in names if name in ALL_GRANTS)
