"""Round trips: imported objects exported, exported endpoints imported."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from endpoints.manifests import documents, exporter, extensions, importer, objects, rules
from endpoints.spec.endpoint_spec import EndpointSpec, merge, parse
from endpoints.spec.fields import BY_PATH
from tests.endpoints.manifests.conftest import LEAST, SAMPLES, put, read, sample


def spec_of(document: dict[str, Any]) -> EndpointSpec:
    return parse(importer.data(objects.read(document)))


def same(one: EndpointSpec, other: EndpointSpec) -> None:
    left, right = one.flat(), other.flat()
    left.pop("manifest"), right.pop("manifest")
    assert left == right


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_sample_is_exported_unchanged(path: Path) -> None:
    document = sample(path)
    spec = spec_of(document)
    assert exporter.manifest(spec) == document
    again = parse(spec.to_dict())
    assert documents.read_documents(documents.to_yaml(exporter.manifest(again))) == [document]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_sample_without_its_source_is_exported_completely(path: Path) -> None:
    spec = spec_of(sample(path))
    bare = parse({**spec.to_dict(), "manifest": {}})
    same(spec_of(exporter.manifest(bare)), spec)


def test_triggers_are_exported_as_imported(least: dict[str, Any]) -> None:
    cloud = {"namespace": "AWS/X", "metricName": "depth", "targetValue": 2.5}
    by_queue = {
        "name": "queue",
        "dimensions": [{"name": "q", "value": "a"}, {"name": "r", "value": "b"}],
        "metricType": "Value",
        "useCachedMetrics": False,
    }
    server = "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1"
    scaling = {
        "cloudWatchTriggerList": [cloud | by_queue, cloud | {"targetValue": 1_000_000}],
        "prometheusTrigger": {"serverAddress": server, "query": "up", "customHeaders": "A=b"},
    }
    scaled = put(least, "spec/autoScalingSpec", scaling)
    spec = spec_of(scaled)
    bare = exporter.manifest(parse({**spec.to_dict(), "manifest": {}}))
    assert bare["spec"]["autoScalingSpec"] == scaling
    assert "annotations" not in bare["metadata"]
    same(spec_of(bare), spec)


def test_only_changed_fields_are_written(least: dict[str, Any]) -> None:
    spec = spec_of(least)
    changed = parse(merge(spec.to_dict(), {"replicas": 3}))
    assert exporter.manifest(changed) == put(least, "spec/replicas", 3)


def test_fields_without_a_manifest_counterpart_are_annotations(least: dict[str, Any]) -> None:
    changes = {"cache": {"l1": {"size_gib": 8.0, "policy": "arc"}}, "rollout": {"drain_s": 20}}
    changed = parse(merge(spec_of(least).to_dict(), changes))
    whole = exporter.manifest(changed)
    assert whole["metadata"]["annotations"] == {
        "emberline.dev/cache.l1.policy": "arc",
        "emberline.dev/cache.l1.size_gib": "8.0",
        "emberline.dev/rollout.drain_s": "20",
    }
    assert whole["spec"]["worker"]["resources"]["requests"]["memory"] == "33Gi", "L1 is in it"
    same(spec_of(whole), changed)


def test_redundant_annotation_is_removed(least: dict[str, Any]) -> None:
    least["metadata"]["annotations"] = {"emberline.dev/replicas": "4", "team": "a"}
    changed = parse(merge(spec_of(least).to_dict(), {"replicas": 2}))
    whole = exporter.manifest(changed)
    assert whole["metadata"]["annotations"] == {"team": "a"}
    assert whole["spec"]["replicas"] == 2


def test_server_defaults_are_omitted(least: dict[str, Any]) -> None:
    from_server = copy.deepcopy(least)
    from_server["status"] = {"state": "DeploymentComplete"}
    from_server["metadata"] |= {"uid": "1", "resourceVersion": "2", "generation": 3}
    from_server["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    from_server["metadata"]["annotations"] = {objects.LAST_APPLIED: "{}"}
    assert exporter.manifest(spec_of(from_server)) == least


def test_unknown_fields_are_kept(least: dict[str, Any]) -> None:
    document = put(least, "spec/dataCapture", {"s3Uri": "s3://a/b", "modelPod": {"enabled": True}})
    document = put(document, "spec/kvCacheSpec", {"cacheConfigFile": "f", "enableL1Cache": True})
    changed = parse(merge(spec_of(document).to_dict(), {"cache": {"l1": {"enabled": False}}}))
    whole = exporter.manifest(changed)
    assert whole["spec"]["dataCapture"] == document["spec"]["dataCapture"]
    assert whole["spec"]["kvCacheSpec"] == {"cacheConfigFile": "f", "enableL1Cache": False}


def test_kind_without_resources_uses_annotations() -> None:
    jumpstart = next(sample(path) for path in SAMPLES if "deepseek_model" in path.name)
    changes = {"resources": {"memory_gib": 60.0, "gpus": 1}}
    changed = parse(merge(spec_of(jumpstart).to_dict(), changes))
    whole = exporter.manifest(changed)
    assert whole["metadata"]["annotations"]["emberline.dev/resources.memory_gib"] == "60.0"
    same(spec_of(whole), changed)


LOCAL: dict[str, Any] = {"name": "demo", "model": "smollm2-135m-instruct", "engine": "simulated"}
ON_CLUSTER: dict[str, Any] = {
    "name": "big",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "placement": {"cluster": "west", "namespace": "team-a", "instance_types": ["g5.xlarge"]},
    "routing": {"enabled": True, "strategy": "kvaware"},
    "source": {"type": "pvc", "claim": "weights", "mount_path": "/models"},
    "scaling": {"enabled": True, "triggers": [{"type": "cpu", "metadata": {"value": "60"}}]},
    "exposure": {"kind": "ingress", "host": "llm.example.com"},
    "router": {"replicas": 3, "max_replicas": 6, "cpus": 0.5, "cpu_limit": 1.0,
               "memory_gib": 1.0, "memory_limit_gib": 2.0},
    "limits": {"max_concurrent": 8, "max_queue": 0},
    "pod": {"env": {"A": "1"},
            "probes": {"liveness": {"periodSeconds": 7, "terminationGracePeriodSeconds": 3}},
            "env_from": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    "tags": {"team": "a"},
}  # fmt: skip


@pytest.mark.parametrize("data", [LOCAL, ON_CLUSTER, {**LOCAL, "model": "/srv/models/x"}])
def test_console_endpoint_is_exported_and_parsed_back(data: dict[str, Any]) -> None:
    spec = parse(data)
    whole = exporter.manifest(spec, "registry.example/worker:1")
    assert rules.errors(read(whole)) == []
    back = spec_of(whole)
    left, right = back.flat(), spec.flat()
    for path in ("manifest", "placement.cluster"):
        left.pop(path), right.pop(path)
    assert left == right


CHANGES = st.dictionaries(
    st.sampled_from(sorted(set(BY_PATH) - {"name", "manifest", "placement.cluster", "model"})),
    st.integers(0, 3),
    min_size=1,
    max_size=6,
)


def _value(path: str, index: int) -> Any:
    """The index-th of some values which the field takes."""
    field = BY_PATH[path]
    if field.choices:
        return field.choices[index % len(field.choices)]
    if field.kind is bool:
        return bool(index % 2)
    if field.kind in (int, float):
        low = field.minimum if field.minimum is not None else (field.above or 0) + 1
        return field.kind(min(low + index * 7, field.maximum or low + index * 7))
    made: dict[type, Any] = {
        tuple: ["--max-model-len", "4096"][: index * 2] if path == "worker_args" else ["a", "b"],
        dict: {} if not index else {"a": "b"},
        list: [{"name": "x", "emptyDir": {}}][:index],
        str: ["", "/a", "abc", "x-1"][index],
    }
    return made[field.kind]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from([*range(len(SAMPLES)), -1]), CHANGES, st.booleans())
def test_every_change_is_exported(which: int, changes: dict[str, int], bare: bool) -> None:
    document = LEAST if which == -1 else sample(SAMPLES[which])
    spec = spec_of(document)
    data = spec.to_dict() | ({"manifest": {}} if bare else {})
    for path, index in changes.items():
        value = _value(path, index)
        if BY_PATH[path].accept(value)[1] is None:
            *sections, leaf = path.split(".")
            patch: dict[str, Any] = {leaf: value}
            for section in reversed(sections):
                patch = {section: patch}
            data = merge(data, patch)
    changed = parse(data)
    whole = exporter.manifest(changed)
    same(spec_of(whole), changed)
    assert list(extensions.problems(objects.read(whole).annotations)) == []


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("llama", "llama"),
        ("llama.v1", "llama-v1"),
        ("8b", "e-8b"),
        ("a" * 41, None),
        ("a." * 30 + "a", None),
    ],
)
def test_object_names_become_endpoint_names(given: str, name: str | None) -> None:
    made = importer.short_name(given)
    assert parse({"name": made, "model": "m"}).name == made
    assert name is None or made == name
    assert len(made) <= 40
    assert importer.short_name(given + "b") != made
