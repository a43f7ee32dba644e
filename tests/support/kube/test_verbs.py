"""Writes behave alike on the fake and the real server, which validates the fake."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support.kube.client import Refused
from tests.support.kube.cluster import Cluster
from tests.support.kube.test_plane import deployment
from tests.support.waiting import until

pytestmark = pytest.mark.timeout(300)


def config(**data: str) -> dict[str, Any]:
    return {"metadata": {"name": "c"}, "data": data}


def owners(data: dict[str, Any]) -> set[tuple[str, str]]:
    return {(e["manager"], e["operation"]) for e in data["metadata"]["managedFields"]}


def refused(code: int, reason: str, call: Any, *args: Any, **more: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        call(*args, **more)
    assert (caught.value.code, caught.value.status["reason"]) == (code, reason)
    return caught.value


def test_apply_owns_releases_and_conflicts(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    made = api.apply("ConfigMap", space, config(a="1", b="1"), manager="one")
    again = api.apply("ConfigMap", space, config(a="1", b="1"), manager="one")
    assert made["metadata"]["resourceVersion"] == again["metadata"]["resourceVersion"]
    api.apply("ConfigMap", space, config(a="1", c="2"), manager="two")  # same value of a
    no = refused(409, "Conflict", api.apply, "ConfigMap", space, config(b="2"), manager="two")
    assert str(no).endswith('Apply failed with 1 conflict: conflict with "one": .data.b')
    assert no.status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.b"}
    ]
    api.apply("ConfigMap", space, config(a="1", b="2"), manager="two", force="true")
    # Manager one releases a, two still owns it. b is owned by two alone; c is released.
    now = api.apply("ConfigMap", space, config(), manager="one")
    assert now["data"] == {"a": "1", "b": "2"}
    assert owners(now) == {("two", "Apply")} or owners(now) == {("one", "Apply"), ("two", "Apply")}


def test_other_write_takes_ownership_of_changed_fields(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    api.apply("ConfigMap", space, config(a="1", b="1"), manager="one")
    path = api.path("ConfigMap", space, "c")
    patch = {"data": {"a": "9"}}
    api.ask("PATCH", path, patch, "application/merge-patch+json", fieldManager="hand")
    no = refused(409, "Conflict", api.apply, "ConfigMap", space, config(a="1", b="1"), "one")
    assert 'conflict with "hand"' in str(no)
    cause = no.status["details"]["causes"][0]
    assert cause["message"] == 'conflict with "hand" using v1'
    assert cause["field"] == ".data.a"
    no = refused(409, "Conflict", api.apply, "ConfigMap", space, config(a="1", b="3"), "two")
    assert {(c["message"], c["field"]) for c in no.status["details"]["causes"]} == {
        ('conflict with "hand" using v1', ".data.a"),
        ('conflict with "one"', ".data.b"),
    }
    gone = {"data": {"a": None}}
    api.ask("PATCH", path, gone, "application/merge-patch+json", fieldManager="hand")
    assert api.apply("ConfigMap", space, config(a="1", b="1"), "one")["data"]["a"] == "1"


def test_list_items_belong_to_their_manager(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    data = deployment("web", 0)
    container = data["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]
    api.apply("Deployment", space, data, manager="one")
    side = {
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "side", "image": "s"}]}}},
    }
    refused(422, "Invalid", api.apply, "Deployment", space, {**side, "metadata": {"name": "x"}})
    api.apply("Deployment", space, side, manager="two")
    less = copy.deepcopy(data)
    del less["spec"]["template"]["spec"]["containers"][0]["env"][0]
    now = api.apply("Deployment", space, less, manager="one")
    found = {c["name"]: c for c in now["spec"]["template"]["spec"]["containers"]}
    assert set(found) == {"main", "side"}
    assert [e["name"] for e in found["main"]["env"]] == ["B"]
    assert now["metadata"]["generation"] == 3
    fight = copy.deepcopy(less)
    fight["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "t"})
    no = refused(409, "Conflict", api.apply, "Deployment", space, fight, manager="one")
    field = '.spec.template.spec.containers[name="side"].image'
    assert [cause["field"] for cause in no.status["details"]["causes"]] == [field]


def test_dry_run_leaves_no_trace(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    content = api.apply("ConfigMap", space, config(a="1"), dryRun="All")
    assert content["data"] == {"a": "1"}
    assert api.find("ConfigMap", space, "c") is None
    api.apply("ConfigMap", space, config(a="1"))
    content = api.apply("ConfigMap", space, config(a="2"), dryRun="All")
    assert content["data"] == {"a": "2"}
    assert api.get("ConfigMap", space, "c")["data"] == {"a": "1"}
    api.ask("DELETE", api.path("ConfigMap", space, "c"), dryRun="All")
    assert api.find("ConfigMap", space, "c") is not None


def test_stale_write_is_rejected(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    refused(404, "NotFound", api.replace, "ConfigMap", space, config())
    old = api.create("ConfigMap", space, config(a="1"))
    refused(409, "AlreadyExists", api.create, "ConfigMap", space, config(a="1"))
    api.merge("ConfigMap", space, "c", {"data": {"a": "2"}})
    no = refused(409, "Conflict", api.replace, "ConfigMap", space, old)
    assert "the object has been modified" in str(no)
    path = api.path("ConfigMap", space, "c")
    wrong = {"preconditions": {"uid": "other"}}
    refused(409, "Conflict", api.ask, "DELETE", path, wrong)
    right = {"preconditions": {"uid": old["metadata"]["uid"]}}
    api.ask("DELETE", path, right)
    assert api.find("ConfigMap", space, "c") is None


def test_immutable_field_stays(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    api.apply("Deployment", space, deployment("web", 0))
    other = deployment("web", 0)
    other["spec"]["selector"]["matchLabels"] = {"app": "web", "b": "c"}
    other["spec"]["template"]["metadata"]["labels"] = {"app": "web", "b": "c"}
    no = refused(422, "Invalid", api.apply, "Deployment", space, other)
    assert "field is immutable" in str(no)
    api.create("Secret", space, {"metadata": {"name": "s"}, "immutable": True})
    patch = {"data": {"x": "eA=="}}
    refused(422, "Invalid", api.merge, "Secret", space, "s", patch)
    refused(422, "Invalid", api.create, "ConfigMap", space, {"metadata": {"name": "Not_Good"}})


def test_unknown_fields(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    data = {**config(a="1"), "dta": {}}
    no = refused(400, "BadRequest", api.create, "ConfigMap", space, data, fieldValidation="Strict")
    assert 'unknown field "dta"' in str(no)
    assert "dta" not in api.create("ConfigMap", space, data)
    wrong = deployment("web", 0)
    wrong["spec"]["replicas"] = "two"
    with pytest.raises(Refused):
        api.create("Deployment", space, wrong)
    rule = {"metadata": {"name": "r"}, "spec": {"groups": [{"rules": []}]}}
    no = refused(422, "Invalid", api.create, "PrometheusRule", space, rule)
    assert "spec.groups[0].name: Required value" in str(no)


def test_status_and_scale_are_subresources(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    data = {"metadata": {"name": "x"}, "spec": {"issuerRef": {"name": "i"}, "secretName": "s"}}
    made = api.create("Certificate", space, {**data, "status": {"conditions": []}})
    assert "status" not in made
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    patch = {"spec": {"secretName": "other"}, "status": status}
    now = api.merge("Certificate", space, "x", patch, "status")
    assert (now["spec"]["secretName"], now["status"]) == ("s", status)
    assert now["metadata"]["generation"] == 1
    api.apply("Deployment", space, deployment("web", 1), manager="one")
    scaled = api.merge("Deployment", space, "web", {"spec": {"replicas": 2}}, "scale")
    assert (scaled["kind"], scaled["spec"]["replicas"]) == ("Scale", 2)
    no = refused(409, "Conflict", api.apply, "Deployment", space, deployment("web", 1), "one")
    assert 'with subresource "scale" using apps/v1: .spec.replicas' in str(no)


def test_quota_is_reported_by_name(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    hard = {"requests.nvidia.com/gpu": "2", "count/deployments.apps": "1"}
    cluster.quota(space, "q", **hard)
    data = deployment("web", 3)
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    data["spec"]["template"]["spec"]["containers"][0]["resources"] = gpu
    api.apply("Deployment", space, data)
    no = refused(403, "Forbidden", api.create, "Deployment", space, deployment("more"))
    assert "exceeded quota: q, requested: count/deployments.apps=1, used: count" in str(no)

    def why() -> str:
        found = api.get("Deployment", space, "web")["status"].get("conditions", ())
        return "".join(c["message"] for c in found if c["type"] == "ReplicaFailure")

    until(lambda: "exceeded quota: q, requested: requests.nvidia.com/gpu=1" in why(), 60)
    assert len(cluster.pods(space)) == 2


def test_rights_are_roles(cluster: Cluster) -> None:
    admin, space = cluster.api, cluster.namespace()
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]}
    rule["resourceNames"] = ["c"]
    admin.apply("Role", space, {"metadata": {"name": "r"}, "rules": [rule]})
    person = {"kind": "User", "name": "person-2", "apiGroup": "rbac.authorization.k8s.io"}
    ref = {"kind": "Role", "name": "r", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "r"}, "subjects": [person], "roleRef": ref}
    admin.apply("RoleBinding", space, binding)
    admin.apply("ConfigMap", space, config(a="1"))
    with cluster.plane.client("person-2") as api:
        until(lambda: _may(api, space), what="rights known")
        api.apply("ConfigMap", space, config(b="2"))
        refused(403, "Forbidden", api.list, "ConfigMap", space)
        admin.create("ConfigMap", space, {"metadata": {"name": "not-named"}})
        refused(403, "Forbidden", api.get, "ConfigMap", space, "not-named")
        other = {"metadata": {"name": "other"}}
        no = refused(403, "Forbidden", api.apply, "ConfigMap", space, other)
        assert "configmaps" in str(no)
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": space}
            },
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        assert api.ask("POST", path, review)["status"]["allowed"] is False


def _may(api: Any, space: str) -> bool:
    try:
        return bool(api.get("ConfigMap", space, "c"))
    except Refused:
        return False


def test_owned_objects_are_deleted_with_their_owner(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    anchor = api.create("ConfigMap", space, {"metadata": {"name": "anchor"}})
    ref = {"apiVersion": "v1", "kind": "ConfigMap", "name": "anchor"}
    ref |= {"uid": anchor["metadata"]["uid"], "blockOwnerDeletion": True}
    api.create("Secret", space, {"metadata": {"name": "s", "ownerReferences": [ref]}})
    held = {"name": "held", "ownerReferences": [ref], "finalizers": ["example.org/wait"]}
    api.create("ConfigMap", space, {"metadata": held})
    api.delete("ConfigMap", space, "anchor", propagationPolicy="Foreground")
    until(lambda: api.find("Secret", space, "s") is None, 60)
    until(lambda: "deletionTimestamp" in api.get("ConfigMap", space, "held")["metadata"], 60)
    waits = api.get("ConfigMap", space, "anchor")["metadata"]
    assert waits["finalizers"] == ["foregroundDeletion"]
    api.merge("ConfigMap", space, "held", {"metadata": {"finalizers": None}})
    until(lambda: api.find("ConfigMap", space, "anchor") is None, 60)


def test_watches_report_selected_objects(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    since = api.ask("GET", api.path("ConfigMap", space))["metadata"]["resourceVersion"]
    data = config(a="1")
    data["metadata"]["labels"] = {"x": "y"}
    api.create("ConfigMap", space, data)
    api.merge("ConfigMap", space, "c", {"data": {"a": "2"}})
    api.merge("ConfigMap", space, "c", {"metadata": {"labels": {"x": "z"}}})
    api.delete("ConfigMap", space, "c")
    query = {"watch": "1", "labelSelector": "x=y", "resourceVersion": since, "timeoutSeconds": "2"}
    with api.stream(api.path("ConfigMap", space), query) as events:
        assert [event["type"] for event in events] == ["ADDED", "MODIFIED", "DELETED"]


def test_ended_namespace_deletes_everything(cluster: Cluster) -> None:
    api, space = cluster.api, cluster.namespace()
    # The finalizer keeps the namespace terminating until the check is done.
    held = config()
    held["metadata"] = {**held["metadata"], "name": "held", "finalizers": ["emberline.dev/test"]}
    api.create("ConfigMap", space, held)
    api.apply("Deployment", space, deployment("web", 1))
    until(lambda: cluster.pods(space))
    api.delete("Namespace", "", space)
    no = refused(403, "Forbidden", api.create, "ConfigMap", space, config())
    assert "because it is being terminated" in str(no)
    api.merge("ConfigMap", space, "held", {"metadata": {"finalizers": None}})
    until(lambda: api.find("Namespace", "", space) is None, 60)
