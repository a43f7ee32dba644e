"""The displayed Role covers everything that rendering creates and grants."""

from __future__ import annotations

from typing import Any

import pytest

from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.kinds import ObjectKind
from console.provisioners.kubernetes.discovery.rights import RIGHTS
from tests.console.provisioners.kubernetes.rendering.matrix import SPECS, rendered

WRITE = {"get", "list", "create", "patch", "delete"}


def verbs(group: str, resource: str, cluster: bool = False) -> set[str]:
    return {
        verb
        for right in RIGHTS
        if (right.group, right.resource) == (group, resource) and (right.cluster or not cluster)
        for verb in right.verbs
    }


@pytest.mark.parametrize("kind", kinds.APPLIED_KINDS, ids=lambda kind: kind.kind)
def test_applied_objects_are_covered_by_rights(kind: ObjectKind) -> None:
    assert verbs(kind.group, kind.plural, not kind.namespaced) >= WRITE


def roles() -> list[dict[str, Any]]:
    return [
        data
        for spec in SPECS.values()
        for data in rendered(spec).values()
        if data["kind"] == "Role"
    ]


def test_granted_workload_rights_are_held_by_the_console() -> None:
    """The API rejects granting a right that the grantor lacks."""
    assert roles()
    for role in roles():
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    assert set(rule["verbs"]) <= verbs(group, resource)
