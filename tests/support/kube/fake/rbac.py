"""RBAC authorization from the Roles and bindings in the store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.support.kube.fake.store import Store


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Deed:
    verb: str
    group: str
    resource: str  # pods, pods/log
    namespace: str = ""
    name: str = ""


def may(store: Store, user: User, deed: Deed) -> bool:
    if "system:masters" in user.groups:
        return True
    return any(_allows(rule, deed) for rule in rules(store, user, deed.namespace))


def rules(store: Store, user: User, namespace: str) -> Iterator[dict[str, Any]]:
    for binding in store.list("ClusterRoleBinding"):
        if _binds(binding, user):
            yield from _role(store, binding, "")
    if namespace:
        for binding in store.list("RoleBinding", namespace):
            if _binds(binding, user):
                yield from _role(store, binding, namespace)


def _binds(binding: dict[str, Any], user: User) -> bool:
    for subject in binding.get("subjects") or ():
        kind, name = subject["kind"], subject["name"]
        if kind == "User" and name == user.name:
            return True
        if kind == "Group" and name in user.groups:
            return True
        if kind == "ServiceAccount":
            space = subject.get("namespace") or binding["metadata"].get("namespace", "")
            if user.name == f"system:serviceaccount:{space}:{name}":
                return True
    return False


def _role(store: Store, binding: dict[str, Any], namespace: str) -> Iterator[dict[str, Any]]:
    ref = binding["roleRef"]
    space = "" if ref["kind"] == "ClusterRole" else namespace
    role = store.find(ref["kind"], space, ref["name"])
    yield from (role or {}).get("rules") or ()


def _allows(rule: dict[str, Any], deed: Deed) -> bool:
    def has(field: str, value: str) -> bool:
        return "*" in rule.get(field, ()) or value in rule.get(field, ())

    named = rule.get("resourceNames")
    sub = deed.resource.partition("/")[2]
    resource = has("resources", deed.resource) or (
        bool(sub) and f"*/{sub}" in rule.get("resources", ())
    )
    return (
        has("verbs", deed.verb)
        and has("apiGroups", deed.group)
        and resource
        and (not named or deed.name in named)
    )
