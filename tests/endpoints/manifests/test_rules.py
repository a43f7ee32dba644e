"""Errors and warnings across manifest fields, each with its path."""

from __future__ import annotations

from typing import Any

import pytest

from endpoints.manifests import advice, objects
from endpoints.manifests.objects import NoteMark
from tests.endpoints.manifests.conftest import SAMPLES, put, read, refusals, sample

ROUTED = {"enabled": True, "routingStrategy": "kvaware"}
L2 = {"enableL2Cache": True, "l2CacheSpec": {"l2CacheBackend": "redis"}}
GPU = "nvidia.com/gpu"


def codes(document: dict[str, Any]) -> dict[str, str]:
    return {path: error.code for path, error in refusals(document).items()}


@pytest.mark.parametrize(
    ("place", "value", "path", "code"),
    [
        ("instanceTypes", ["ml.a"], "spec.instanceTypes", "exclusive"),
        ("nodeAffinity", {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {}}]}, "spec.nodeAffinity", "exclusive"),
        ("modelSourceConfig", {"modelSourceType": "s3"},
         "spec.modelSourceConfig.s3Storage", "required"),
        ("modelSourceConfig", {"modelSourceType": "fsx"},
         "spec.modelSourceConfig.fsxStorage", "required"),
        ("modelSourceConfig", {"modelSourceType": "kubernetesVolume"},
         "spec.kubernetes.volumes", "required"),
        ("modelSourceConfig", {"modelSourceType": "huggingface", "huggingFaceModel": {
            "modelId": "a/b", "tokenSecretRef": {"key": "k"}}},
         "spec.modelSourceConfig.huggingFaceModel.tokenSecretRef.name", "required"),
        ("intelligentRoutingSpec", ROUTED, "spec.invocationEndpoint", "kvaware_needs_completions"),
        ("kvCacheSpec", L2, "spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl", "required"),
        ("kvCacheSpec", {"enableL2Cache": True},
         "spec.kvCacheSpec.l2CacheSpec.l2CacheBackend", "required"),
        ("kvCacheSpec", {"l2CacheSpec": {"l2CacheBackend": "my-redis-x"}},
         "spec.kvCacheSpec.l2CacheSpec.l2CacheBackend", "invalid_choice"),
        ("kvCacheSpec", {"enableL1Cache": False, "enableL2Cache": True, "l2CacheSpec": {
            "l2CacheBackend": "tieredstorage"}}, "spec.kvCacheSpec.enableL1Cache", "l2_needs_l1"),
        ("kvCacheSpec", {"enableL2Cache": True, "l2CacheSpec": {
            "l2CacheBackend": "Redis", "l2CacheLocalUrl": "redis://u:secret@h:1"}},
         "spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl", "secret_in_url"),
        ("autoScalingSpec", {"minReplicaCount": 3, "maxReplicaCount": 2},
         "spec.autoScalingSpec.maxReplicaCount", "out_of_range"),
        ("autoScalingSpec", {"minReplicaCount": 0, "maxReplicaCount": 0},
         "spec.autoScalingSpec.maxReplicaCount", "out_of_range"),
        ("autoScalingSpec", {"prometheusTriggerList": [{"query": "up", "targetValue": 1}]},
         "spec.autoScalingSpec.prometheusTriggerList[0].serverAddress", "required"),
        ("autoScalingSpec", {"cloudWatchTrigger": {"namespace": "a", "targetValue": 1}},
         "spec.autoScalingSpec.cloudWatchTrigger.metricName", "required"),
        ("dnsConfig", {"hostedZoneId": "Z1"}, "spec.dnsConfig", "required"),
        ("tags", [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}],
         "spec.tags[1]", "duplicate"),
        ("maxDeployTimeInSeconds", 5, "spec.maxDeployTimeInSeconds", "out_of_range"),
    ],
)  # fmt: skip
def test_conflicting_fields(
    least: dict[str, Any], place: str, value: Any, path: str, code: str
) -> None:
    assert codes(put(least, f"spec/{place}", value)) == {path: code}


def test_secret_in_an_address_is_not_repeated(least: dict[str, Any]) -> None:
    second = {"l2CacheBackend": "redis", "l2CacheLocalUrl": "redis://u:hunter2@h:1"}
    block = {"enableL2Cache": True, "l2CacheSpec": second}
    assert "hunter2" not in repr(refusals(put(least, "spec/kvCacheSpec", block)))


def test_device_requests_equal_limits(least: dict[str, Any]) -> None:
    block = {"requests": {GPU: 1}, "limits": {GPU: 2}}
    assert codes(put(least, "spec/worker/resources", block)) == {
        f"spec.worker.resources.limits[{GPU}]": "invalid"
    }
    assert codes(put(least, "spec/worker/resources", {"requests": {GPU: 1}})) == {
        f"spec.worker.resources.limits[{GPU}]": "required"
    }


def test_each_role_of_a_split_needs_a_gpu(least: dict[str, Any]) -> None:
    bare = put(least, "spec/worker/resources", {"requests": {"cpu": 1}})
    split = {"prefillSpec": {"resources": {"limits": {GPU: 1}}}, "decodingSpec": {}}
    assert codes(put(bare, "spec/pdSpec", split)) == {
        "spec.pdSpec.decodingSpec.resources": "required"
    }
    assert codes(put(least, "spec/pdSpec", split)) == {}, "the shared ones count"


def test_chat_path_is_one_of_completions(least: dict[str, Any]) -> None:
    routed = put(least, "spec/intelligentRoutingSpec", ROUTED)
    assert codes(put(routed, "spec/invocationEndpoint", "v1/chat/completions")) == {}


def test_claim_is_found_by_its_mount_name(least: dict[str, Any]) -> None:
    volume = {"name": "model-weights", "persistentVolumeClaim": {"claimName": "weights"}}
    of_volume = put(least, "spec/modelSourceConfig", {"modelSourceType": "kubernetesVolume"})
    assert codes(put(of_volume, "spec/kubernetes", {"volumes": [volume]})) == {}
    other = {**volume, "name": "else"}
    assert "spec.kubernetes.volumes" in codes(
        put(of_volume, "spec/kubernetes", {"volumes": [other]})
    )


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        (("kind", "Pod"), "kind", "invalid_choice"),
        (("apiVersion", "inference.sagemaker.aws.amazon.com/v9"), "apiVersion", "invalid_choice"),
        (("apiVersion", "apps/v1"), "apiVersion", "invalid_choice"),
        (("data", {}), "data", "unknown_field"),
        (("metadata", {}), "metadata.name", "required"),
        (("metadata/name", "Not_a_name"), "metadata.name", "invalid_name"),
        (("metadata/namespace", "a.b"), "metadata.namespace", "invalid_name"),
        (("metadata/generateName", "x-"), "metadata.generateName", "unknown_field"),
        (("metadata/labels", {"a": 1}), "metadata.labels[a]", "type"),
        (("spec", None), "spec", "required"),
        (("metadata/annotations", {"emberline.dev/replica": "1"}),
         "metadata.annotations[emberline.dev/replica]", "unknown_field"),
        (("metadata/annotations", {"emberline.dev/placement.cluster": "a"}),
         "metadata.annotations[emberline.dev/placement.cluster]", "unknown_field"),
        (("metadata/annotations", {"emberline.dev/cache.l1.size_gib": "four"}),
         "metadata.annotations[emberline.dev/cache.l1.size_gib]", "type"),
    ],
)  # fmt: skip
def test_objects_of_an_invalid_shape(
    least: dict[str, Any], change: tuple[str, Any], path: str, code: str
) -> None:
    assert codes(put(least, *change)) == {path: code}


def test_v1alpha1_has_fewer_fields(least: dict[str, Any]) -> None:
    old = put(least, "apiVersion", "inference.sagemaker.aws.amazon.com/v1alpha1")
    assert "spec.worker.args" in codes(old)
    old = put(old, "spec/worker/args", None)
    assert codes(old) == {
        "spec.modelSourceConfig.modelSourceType": "invalid_choice",
        "spec.modelSourceConfig.huggingFaceModel": "unknown_field",
    }
    storage = {"bucketName": "b", "region": "r"}
    source = {"modelSourceType": "s3", "s3Storage": storage}
    assert codes(put(old, "spec/modelSourceConfig", source)) == {}


def test_placeholders_of_samples_must_be_replaced() -> None:
    for path in SAMPLES:
        if "llama31" in path.name:
            from endpoints.manifests import documents

            raw = documents.read_documents(path.read_text(encoding="utf-8"))[0]
            assert "placeholder" in codes(raw).values()


def test_name_may_come_from_the_endpoint(least: dict[str, Any]) -> None:
    bare = put(put(least, "metadata/name", None), "spec/endpointName", "served")
    assert codes(bare) == {}


def list_advice(document: dict[str, Any]) -> dict[str, str]:
    return {note.path: note.code for note in advice.notes(read(document))}


@pytest.mark.parametrize(
    ("place", "value", "path", "code"),
    [
        ("InitialReplicaCount", 3, "spec.InitialReplicaCount", "dead_field"),
        ("instanceType", None, "spec.instanceType", "no_placement"),
        ("metrics", {"modelMetrics": {"port": 8080}}, "spec.metrics.modelMetrics.port",
         "port_mismatch"),
        ("kvCacheSpec", {"cacheConfigFile": "x"}, "spec.kvCacheSpec.cacheConfigFile", "not_read"),
        ("endpointName", "x", "spec.endpointName", "only_aws"),
        ("dataCapture", {"loadBalancer": {"enabled": True}}, "spec.dataCapture", "only_aws"),
        ("modelVersion", "1", "spec.modelVersion", "only_aws"),
        ("loadBalancer", {"healthCheckPath": "/ping"}, "spec.loadBalancer.healthCheckPath",
         "ping_on_vllm"),
        ("autoScalingSpec", {"prometheusTrigger": {
            "serverAddress": "http://prometheus:9090", "query": "up", "targetValue": 1}},
         "spec.autoScalingSpec.prometheusTrigger", "not_portable"),
        ("intelligentRoutingSpec", {"autoScalingSpec": {"maxReplicaCount": 4}},
         "spec.intelligentRoutingSpec.autoScalingSpec", "router_scaling"),
    ],
)  # fmt: skip
def test_accepted_manifests_with_warnings(
    least: dict[str, Any], place: str, value: Any, path: str, code: str
) -> None:
    before = list_advice(put(least, "spec/loadBalancer", {"healthCheckPath": "/health"}))
    assert path not in before
    assert list_advice(put(least, f"spec/{place}", value))[path] == code


def test_plain_secret_is_a_warning(least: dict[str, Any]) -> None:
    content = [{"name": "HF_TOKEN", "value": "hf_abc"}, {"name": "PATH", "value": "x"},
            {"name": "B_TOKEN", "valueFrom": {"fieldRef": {"fieldPath": "a"}}}]  # fmt: skip
    notes = advice.notes(read(put(least, "spec/worker/environmentVariables", content)))
    found = [note for note in notes if note.code == "secret_in_clear"]
    assert [note.path for note in found] == ["spec.worker.environmentVariables[0]"]
    assert "hf_abc" not in repr(found)


def test_overriding_annotation_is_a_warning(least: dict[str, Any]) -> None:
    over = put(least, "metadata/annotations", {"emberline.dev/replicas": "4"})
    assert list_advice(over)["metadata.annotations[emberline.dev/replicas]"] == "annotation_wins"


def test_every_sample_lists_its_aws_only_fields() -> None:
    for path in SAMPLES:
        notes = advice.notes(objects.read(sample(path)))
        assert any(note.mark is NoteMark.KEPT for note in notes), path.name
