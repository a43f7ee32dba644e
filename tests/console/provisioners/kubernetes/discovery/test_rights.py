"""Granted rights from rules or single reviews, and a Role that grants the missing ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pytest
import yaml

from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.access import KUBECONFIG, ClusterAccess
from console.provisioners.kubernetes.api.capabilities import CAPABILITIES
from console.provisioners.kubernetes.api.reader import Reader
from console.provisioners.kubernetes.discovery import rights
from console.provisioners.kubernetes.discovery.inventory import CapabilityFinding, Inventory
from console.provisioners.kubernetes.discovery.survey import discover
from tests.console.provisioners.kubernetes.discovery.test_survey import access
from tests.support.http_stub import Stub, http_stub
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

REVIEWS = "/apis/authorization.k8s.io/v1"
ALL = Inventory(
    findings=tuple(CapabilityFinding(name, present=True) for name in CAPABILITIES), shares=True
)


@pytest.fixture
def api() -> Iterator[Stub]:
    with http_stub({f"{REVIEWS}/selfsubjectaccessreviews": allowed(False)}) as stub:
        yield stub


def allowed(verdict: bool) -> tuple[int, dict[str, Any]]:
    return 201, {"status": {"allowed": verdict}}


def rules(*rules: dict[str, Any], incomplete: bool = False) -> tuple[int, dict[str, Any]]:
    return 201, {"status": {"resourceRules": list(rules), "incomplete": incomplete}}


def rule(group: str, resource: str, *verbs: str, **more: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs), **more}


def check(
    api: Stub, found: Inventory = ALL, followed: tuple[str, ...] = ()
) -> rights.GrantedRights:
    return rights.check_rights(Reader(access(api.url)), "llm", found, followed)


def missing(api: Stub) -> dict[str, tuple[str, ...]]:
    return {one.title: one.verbs for one in check(api).needed if not one.cluster}


def test_every_applied_kind_has_its_right() -> None:
    checked = {(one.group, one.resource) for one in rights.RIGHTS if set(one.verbs) > {"patch"}}
    assert {(kind.group, kind.plural) for kind in kinds.APPLIED_KINDS} <= checked
    for right in rights.RIGHTS:
        assert "*" not in (right.group, right.resource, *right.verbs)


def test_endpoints_work_without_the_right_to_watch(api: Stub) -> None:
    own = [one for one in rights.RIGHTS if not one.cluster and one.verbs != ("watch",)]
    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = rules(
        *(rule(one.group, one.resource, *one.verbs) for one in own)
    )
    granted = check(api)
    assert granted.enough
    watches = {one.title: one.lost for one in granted.wished if one.verbs == ("watch",)}
    assert set(watches) == {"pods", "deployments.apps"}
    assert set(watches.values()) == {"endpoints are polled every few seconds"}


def test_rules_are_read_in_one_request(api: Stub) -> None:
    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = rules(
        rule("", "configmaps", "*"),
        rule("apps", "*", "get", "list"),
        rule("", "secrets", "*", resourceNames=["one"]),
    )
    found = missing(api)
    assert "configmaps" not in found
    assert found["deployments.apps"] == ("create", "patch", "delete")
    assert "replicasets.apps" not in found
    assert found["secrets"] == rights.VERBS_OF_OWN, "a right to one Secret is not one to all"
    checked = [json.loads(body) for _m, path, body in api.seen if path.endswith("accessreviews")]
    assert {one["spec"]["resourceAttributes"]["namespace"] for one in checked} == {""}


def test_incomplete_rules_are_checked_individually(api: Stub) -> None:
    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = rules(incomplete=True)
    api.answers[f"{REVIEWS}/selfsubjectaccessreviews"] = allowed(True)
    assert check(api).missing == ()
    assert check(api).manifest == ""


def test_only_available_apis_are_checked(api: Stub) -> None:
    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = rules()
    titles = {one.title for one in check(api, Inventory()).missing}
    assert not {"scaledobjects.keda.sh", "persistentvolumes"} & titles
    assert {"scaledobjects.keda.sh", "persistentvolumes"} <= {
        one.title for one in check(api).missing
    }


@pytest.mark.parametrize(
    ("who", "subject"),
    [
        (
            "system:serviceaccount:ops:console",
            {"kind": "ServiceAccount", "namespace": "ops", "name": "console"},
        ),
        ("arn:x", {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "arn:x"}),
    ],
)
def test_role_is_bound_to_the_console_identity(who: str, subject: dict[str, str]) -> None:
    documents = list(yaml.safe_load_all(rights.manifest(rights.RIGHTS, who, "llm")))
    assert [one["kind"] for one in documents] == [
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ]
    assert documents[1]["subjects"] == [subject]
    assert documents[0]["metadata"]["namespace"] == "llm"
    assert "namespace" not in documents[2]["metadata"]


def test_incomplete_level_is_shown_completely(api: Stub) -> None:
    """Applying the Role replaces one of that name, so it must include rights already granted."""
    everything = [
        rule(one.group, one.resource, *one.verbs)
        for one in rights.RIGHTS
        if not one.cluster and one.resource != "deployments"
    ]
    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = rules(*everything)
    api.answers[f"{REVIEWS}/selfsubjectaccessreviews"] = allowed(True)
    granted = check(api)
    assert {one.title for one in granted.missing} == {"deployments.apps"}
    role, _binding = yaml.safe_load_all(granted.manifest)
    assert {"configmaps", "deployments"} <= {
        resource for one in role["rules"] for resource in one["resources"]
    }


def test_following_rights_are_checked_only_where_needed(api: Stub) -> None:
    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = rules()
    group = {one.title for one in rights.RIGHTS if one.part == rights.FOLLOW_GROUP} - {"events"}
    nobody = check(api)
    assert not group & {one.title for one in nobody.missing}
    assert not [title for title in group if title.split(".")[0] in nobody.manifest]
    found = check(api, followed=("team-a", "team-b"))
    lost = [one for one in found.missing if one.title in group]
    assert {one.namespace for one in lost} == {"", "team-a", "team-b"}
    assert all(one.cluster is not bool(one.namespace) for one in lost)
    assert all(one.optional and one.lost for one in lost)
    documents = {
        (one["kind"], one["metadata"].get("namespace", "")): one
        for one in yaml.safe_load_all(found.manifest)
        if one["kind"].endswith("Role")
    }
    assert set(documents) == {
        *(("Role", space) for space in ("llm", "team-a", "team-b")),
        ("ClusterRole", ""),
    }

    def may(kind: str, space: str) -> set[str]:
        return {name for one in documents[kind, space]["rules"] for name in one["resources"]}

    assert "inferenceendpointconfigs/status" not in may("Role", "llm")
    # Endpoints are created in watched namespaces; applying the Role must remove no right.
    assert may("Role", "team-a") >= {"inferenceendpointconfigs/status", *may("Role", "llm")}
    (by_name,) = (one for one in documents["ClusterRole", ""]["rules"] if "resourceNames" in one)
    assert by_name["verbs"] == ["get", "patch"]
    assert by_name["resourceNames"] == [
        "inferenceendpointconfigs.inference.sagemaker.aws.amazon.com"
    ]
    checked = [json.loads(body) for _m, path, body in api.seen if path.endswith("accessreviews")]
    names = {one["spec"]["resourceAttributes"]["name"] for one in checked}
    assert names == {"", *by_name["resourceNames"]}, "a right to one definition is not one to all"
    assert rights.GrantedRights.of_json(json.loads(json.dumps(asdict(found)))) == found


def test_without_following_nothing_is_missing(api: Stub) -> None:
    """A cluster used without following is not reported as lacking rights."""
    plain = [
        rule(one.group, one.resource, *one.verbs)
        for one in rights.RIGHTS
        if not one.cluster and not one.part
    ]
    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = rules(*plain)
    found = check(api, followed=("llm",))
    assert found.enough
    here = {(one.title, one.verbs) for one in found.missing if not one.cluster}
    follow = [one for one in rights.RIGHTS if one.part == rights.FOLLOW_GROUP]
    assert here == {(one.title, one.verbs) for one in follow if not one.cluster}


def test_receiver_rights_are_checked_where_receivers_are_stored(api: Stub) -> None:
    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = rules()
    title = "alertmanagerconfigs.monitoring.coreos.com"
    found = Inventory(findings=(CapabilityFinding("prometheus-operator", True),))
    for parts, checked in (((), False), ((rights.RECEIVERS_GROUP,), True)):
        granted = rights.check_rights(Reader(access(api.url)), "llm", found, ("team-a",), parts)
        lost = [one.namespace for one in granted.missing if one.title == title]
        assert (lost == [""]) is checked
        assert ("alertmanagerconfigs" in granted.manifest) is checked


def test_displayed_role_grants_all_missing_rights(cluster: Cluster) -> None:
    space = cluster.namespace()
    followed = (space, cluster.namespace())
    config = cluster.plane.kubeconfig_of("person-8", space).read_text()
    login = ClusterAccess(KUBECONFIG, config)
    found = discover(login)
    before = rights.check_rights(Reader(login), space, found, followed)
    assert (before.who, before.enough) == ("person-8", False)
    made = []
    for body in yaml.safe_load_all(before.manifest):
        where = body["metadata"].get("namespace", "")
        cluster.api.apply(body["kind"], where, body)
        made.append((body["kind"], where, body["metadata"]["name"]))
    try:
        until(
            lambda: not rights.check_rights(Reader(login), space, found, followed).missing,
            what="granted",
        )
        again = discover(login)
        assert again.notes == ()
        assert sum(pool.gpus for pool in again.pools) > 0
    finally:
        for kind, where, name in made:
            if not where:  # removed with the namespace
                cluster.api.delete(kind, "", name)
