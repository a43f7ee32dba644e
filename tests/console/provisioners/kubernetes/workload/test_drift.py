"""Field changes and their managers, from managedFields as written by a real server."""

from __future__ import annotations

import copy
from typing import Any

from console.provisioners.base import Drift
from console.provisioners.kubernetes.workload.drift import find_drift, storable, without_released

PORT = 'k:{"containerPort":8000,"protocol":"TCP"}'
NOON = 1767268800.0  # 2026-01-01T12:00:00Z


def applied() -> dict[str, Any]:
    container = {
        "name": "worker",
        "image": "vllm:1",
        "args": ["--port", "8000"],
        "ports": [{"name": "http", "containerPort": 8000}],
        "env": [{"name": "A", "value": "1"}],
        "resources": {"limits": {"memory": "1Gi"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "demo", "namespace": "models", "labels": {"a.b/c": "x"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "demo"}},
            "template": {"spec": {"containers": [container], "volumes": []}},
        },
    }


def owned() -> dict[str, Any]:
    container = {
        ".": {},
        "f:name": {},
        "f:image": {},
        "f:args": {},
        "f:ports": {PORT: {".": {}, "f:name": {}, "f:containerPort": {}}},
        "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
        "f:resources": {"f:limits": {"f:memory": {}}},
    }
    return {
        "f:metadata": {"f:labels": {"f:a.b/c": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {"f:spec": {"f:containers": {'k:{"name":"worker"}': container}}},
        },
    }


def live() -> dict[str, Any]:
    """Return the object as stored right after apply, with server defaults."""
    found = copy.deepcopy(applied())
    found["metadata"]["managedFields"] = [
        {
            "manager": "emberline",
            "operation": "Apply",
            "time": "2026-01-01T10:00:00Z",
            "fieldsV1": owned(),
        }
    ]
    container = found["spec"]["template"]["spec"]["containers"][0]
    container["imagePullPolicy"] = "IfNotPresent"
    container["ports"][0]["protocol"] = "TCP"
    del found["spec"]["template"]["spec"]["volumes"]
    found["status"] = {"replicas": 2}
    return found


def edited(found: dict[str, Any], fields: dict[str, Any], manager: str = "kubectl-edit") -> None:
    found["metadata"]["managedFields"].append(
        {
            "manager": manager,
            "operation": "Update",
            "time": "2026-01-01T12:00:00Z",
            "fieldsV1": fields,
        }
    )


def container_of(body: dict[str, Any]) -> Any:
    return body["spec"]["template"]["spec"]["containers"][0]


def mine(found: dict[str, Any]) -> Any:
    return found["metadata"]["managedFields"][0]["fieldsV1"]


def my_container(found: dict[str, Any]) -> Any:
    template = mine(found)["f:spec"]["f:template"]
    return template["f:spec"]["f:containers"]['k:{"name":"worker"}']


def test_server_defaults_are_no_drift() -> None:
    assert find_drift(applied(), live()) == ()


def test_drift_states_manager_and_time() -> None:
    found = live()
    found["spec"]["replicas"] = 5
    del mine(found)["f:spec"]["f:replicas"]
    edited(found, {"f:spec": {"f:replicas": {}}}, "kubectl")
    seen = find_drift(applied(), found)
    assert seen == (Drift("Deployment/demo", ".spec.replicas", 2, 5, "kubectl", NOON),)
    assert seen[0].key == "Deployment/demo.spec.replicas"


def test_nested_list_field_is_named_as_by_the_server() -> None:
    found = live()
    container_of(found)["image"] = "vllm:2"
    container_of(found)["args"] = []
    container_of(found)["env"] = []
    for field in ("f:image", "f:args", "f:env"):
        del my_container(found)[field]
    path = {"f:containers": {'k:{"name":"worker"}': {"f:image": {}, "f:args": {}}}}
    edited(found, {"f:spec": {"f:template": {"f:spec": path}}})
    base = '.spec.template.spec.containers[name="worker"]'
    seen = {one.path: one for one in find_drift(applied(), found)}
    assert set(seen) == {f"{base}.image", f"{base}.args", f"{base}.env"}
    assert seen[f"{base}.image"].manager == seen[f"{base}.args"].manager == "kubectl-edit"
    assert seen[f"{base}.env"].manager == ""  # removed: an absent field has no owner
    assert seen[f"{base}.env"].wanted == [{"name": "A", "value": "1"}]


def test_removed_list_entry_is_named() -> None:
    found = live()
    container_of(found)["env"] = [{"name": "B", "value": "2"}]
    path = {'k:{"name":"worker"}': {"f:env": {'k:{"name":"B"}': {".": {}, "f:name": {}}}}}
    edited(found, {"f:spec": {"f:template": {"f:spec": {"f:containers": path}}}})
    del my_container(found)["f:env"]
    (seen,) = find_drift(applied(), found)
    assert seen.path == '.spec.template.spec.containers[name="worker"].env[name="A"]'
    assert (seen.found, seen.manager) == (None, "")


def test_atomic_mapping_is_owned_as_a_whole() -> None:
    found = live()
    found["spec"]["selector"]["matchLabels"]["other"] = "x"
    assert find_drift(applied(), found) == ()


def test_foreign_manager_with_the_wanted_value_is_no_drift() -> None:
    found = live()
    del mine(found)["f:spec"]["f:replicas"]
    edited(found, {"f:spec": {"f:replicas": {}}})
    assert find_drift(applied(), found) == ()


def test_removed_label_has_no_manager() -> None:
    found = live()
    del found["metadata"]["labels"]
    del mine(found)["f:metadata"]
    (seen,) = find_drift(applied(), found)
    assert (seen.path, seen.wanted, seen.found) == (".metadata.labels", {"a.b/c": "x"}, None)


def test_deleted_object_is_one_drift() -> None:
    assert find_drift(applied(), None) == (Drift("Deployment/demo", "", "there", None),)


def test_field_left_to_others_is_not_applied() -> None:
    found = live()
    base = 'Deployment/demo.spec.template.spec.containers[name="worker"]'
    left = frozenset({f"{base}.image", f'{base}.env[name="A"]', "Deployment/demo.spec.replicas"})
    body = without_released(applied(), found, left)
    assert "replicas" not in body["spec"]
    assert "image" not in container_of(body)
    assert container_of(body)["env"] == []
    assert container_of(body)["name"] == "worker"
    assert container_of(applied())["image"] == "vllm:1"
    others = without_released(applied(), found, frozenset({"Deployment/demo-2.spec.replicas"}))
    assert others == applied()


def test_secrets_are_neither_stored_nor_shown() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "demo-env"},
        "data": {"KEY": "c2VjcmV0"},
    }
    kept = storable(secret)
    assert "c2VjcmV0" not in str(kept)
    found = copy.deepcopy(secret) | {"data": {"KEY": "Zm9yZWlnbg=="}}
    found["metadata"] = {"name": "demo-env", "managedFields": []}
    edited(found, {"f:data": {"f:KEY": {}}})
    (seen,) = find_drift(kept, found)
    assert (seen.path, seen.wanted, seen.found) == (".data.KEY", "(secret)", "(secret)")
    assert seen.manager == "kubectl-edit"
    long = {"kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "x" * 9999}}
    assert len(str(storable(long))) < 1000
