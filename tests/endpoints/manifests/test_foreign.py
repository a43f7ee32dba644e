"""Manifests as they are published: arguments, nulls, variables, other kinds, lost indentation."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from console.clusters.models import Cluster, ClusterStatus
from console.core.errors import Problem
from endpoints import manifest_actions
from endpoints.actions import SYSTEM
from endpoints.manifest_actions import ManifestTarget
from endpoints.manifests import advice, documents, importer, objects
from endpoints.spec.endpoint_spec import SpecErrors
from endpoints.spec.validators import redact
from tests.endpoints.manifests.conftest import LEAST, put, read, refusals

HUB = "meta-llama/Llama-3.1-8B-Instruct"
LMCACHE = json.dumps({"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"})


@pytest.fixture
def east() -> Cluster:
    cluster = Cluster.objects.create(name="east", kind="in-cluster")
    ClusterStatus.objects.create(cluster=cluster)
    return cluster


def with_args(*args: str, command: list[str] | None = None) -> dict[str, Any]:
    changed = put(LEAST, "spec/worker/args", list(args))
    return put(changed, "spec/worker/command", command) if command else changed


def notes_of(document: dict[str, Any]) -> dict[str, str]:
    return {note.code: note.message for note in advice.notes(read(document))}


@pytest.mark.parametrize(
    ("args", "dropped"),
    [
        (["--model", HUB], "--model"),
        (["--model", "/opt/ml/model"], "--model"),
        ([f"--model={HUB}"], "--model"),
        (["--enable-prefix-caching"], "--enable-prefix-caching"),
        (["--block-size", "32"], "--block-size"),
        (["--kv-transfer-config", LMCACHE], "--kv-transfer-config"),
        ([f"--kv-transfer-config={LMCACHE}"], "--kv-transfer-config"),
        (["--port", "8000", "--host=0.0.0.0"], "--port, --host"),
        (["--served-model-name", "llama", "gpt-4o-mini"], "--served-model-name"),
    ],
)
def test_arguments_that_repeat_fields_are_dropped_with_a_notice(
    args: list[str], dropped: str
) -> None:
    document = with_args(*args, "--max-model-len", "4096")
    assert importer.flat(read(document))["worker_args"] == ["--max-model-len", "4096"]
    assert notes_of(document)["repeated"].startswith(f"{dropped}: ")


@pytest.mark.parametrize(
    "args",
    [
        ["--model", "other/model"],
        ["--block-size", "64"],
        ["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'],
        ["--kv-transfer-config", "not json"],
    ],
)
@pytest.mark.django_db
def test_arguments_that_contradict_fields_are_named(args: list[str], east: Cluster) -> None:
    with pytest.raises(SpecErrors) as caught:
        manifest_actions.plan(SYSTEM, [with_args(*args)], ManifestTarget(east.name))
    (error,) = [item for item in caught.value.errors if item.code == "collision"]
    assert error.field == "spec.worker.args"
    assert args[0] in error.message
    assert error.remedy.startswith(f"Remove {args[0]}")


@pytest.mark.parametrize(
    ("command", "args"),
    [
        (None, ["-m", "vllm.entrypoints.openai.api_server", "--model", HUB]),
        (["python3"], ["-m", "vllm.entrypoints.openai.api_server", "--model", HUB]),
        (None, ["vllm", "serve", HUB]),
        (["vllm"], ["serve", HUB]),
        (["vllm", "serve", HUB], []),
        (None, ["serve", "/opt/ml/model"]),
        (["/bin/sh", "-c"], [f"exec vllm serve {HUB} --port 8000"]),
        (["bash", "-c", f"vllm serve {HUB} \\\n  --port 8000"], []),
    ],
)
def test_first_words_belong_to_the_command(command: list[str] | None, args: list[str]) -> None:
    last = ["--max-model-len", "4096"]
    is_line = bool(command and "-c" in command)
    if is_line and args:
        args = [f"{args[0]} --max-model-len 4096"]
    elif is_line and command:
        command = [*command[:2], f"{command[2]} --max-model-len 4096"]
    document = with_args(*(args if is_line else [*args, *last]), command=command)
    flat = importer.flat(read(document))
    assert (flat["pod.command"], flat["worker_args"]) == ([], last)
    assert flat["cache.l1.enabled"], "vLLM is recognised"


@pytest.mark.django_db
def test_another_model_behind_serve_is_named_as_the_model(east: Cluster) -> None:
    document = with_args("vllm", "serve", "other/model", "--max-model-len", "4096")
    with pytest.raises(SpecErrors) as raised:
        manifest_actions.plan(SYSTEM, [document], ManifestTarget(east.name))
    assert [error.message for error in raised.value.errors] == [
        "--model is set by Emberline: the field model sets it."
    ]


def test_other_commands_stay() -> None:
    script = "pip install x && vllm serve model"
    flat = importer.flat(read(with_args(script, command=["sh", "-c"])))
    assert (flat["pod.command"], flat["worker_args"]) == (["sh", "-c"], [script])


def test_served_names_of_the_source_answer() -> None:
    flat = importer.flat(read(with_args("--served-model-name", "llama", "gpt-4o-mini")))
    assert flat["aliases"] == ["llama", "gpt-4o-mini"]
    own = importer.flat(read(with_args("--served-model-name", "Llama-3.1-8B-Instruct")))
    assert own["aliases"] == []


def test_nulls_are_absent() -> None:
    document = put(LEAST, "spec/worker/environmentVariables", ...)
    document["spec"]["worker"]["environmentVariables"] = None
    document["spec"]["kvCacheSpec"] = None
    document["spec"]["metrics"] = {"enabled": True, "modelMetrics": None}
    document["metadata"]["labels"] = None
    document["status"] = None
    without = copy.deepcopy(LEAST) | {}
    without["spec"]["metrics"] = {"enabled": True}
    assert importer.flat(read(document)) == importer.flat(read(without))
    listed = put(LEAST, "spec/worker/args", ["--max-model-len", None])
    assert "spec.worker.args[1]" in refusals(listed)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec/modelName", "${MODEL_NAME}"),
        ("spec/instanceType", "${INSTANCE_TYPE:-ml.g5.8xlarge}"),
        ("metadata/name", "${NAME}"),
        ("metadata/namespace", "$" + "{NS}"),
        ("spec/worker/args", ["--max-model-len", "${LEN}"]),
        ("spec/worker/environmentVariables", [{"name": "A", "value": "${TOKEN}"}]),
        ("apiVersion", "${API}"),
    ],
)
def test_shell_variables_are_refused_with_a_hint(path: str, value: Any) -> None:
    found = list(refusals(put(LEAST, path, value)).values())
    (error,) = [error for error in found if error.code == "placeholder"]
    assert error.field.startswith(path.replace("/", "."))
    assert "envsubst < FILE | emberline endpoint apply -f -" in error.remedy
    assert "${" in error.message


@pytest.mark.parametrize(
    ("path", "value", "refused"),
    [
        ("spec/modelName", "<model>", True),
        ("metadata/name", "<endpoint-name>", True),
        ("spec/worker/image", "<account-id>.dkr.ecr.<region>.amazonaws.com/vllm:1", True),
        ("spec/worker/args", ["--tokenizer", "<my-bucket>"], True),
        ("spec/worker/args", ["--reasoning-config", '{"start": "<think>"}'], False),
        ("spec/worker/args", ["--stop", "<|im_end|>"], False),
        ("spec/worker/args", ["--x", "$(POD_NAME)"], False),
        ("spec/worker/args", ["--x", "{{ .Values.x }}"], True),
        ("spec/modelName", '{{- include "name" . }}', True),
        ("spec/worker/args", ["--chat-template", "{{ messages[0].content }}"], False),
    ],
)
def test_placeholders_are_refused(path: str, value: Any, refused: bool) -> None:
    found = [error.code for error in refusals(put(LEAST, path, value)).values()]
    assert ("placeholder" in found) is refused, found


@pytest.mark.parametrize("version", ["hyperpod.sagemaker.aws/v1"])
def test_other_group_of_the_kind_is_accepted(version: str) -> None:
    manifest = read(put(LEAST, "apiVersion", version))
    assert str(manifest.whole["apiVersion"]).startswith("inference.sagemaker.aws.amazon.com/v1")
    unknown = refusals(put(LEAST, "apiVersion", "example.com/v1"))["apiVersion"]
    assert unknown.remedy == "Write inference.sagemaker.aws.amazon.com/v1."


JUMPSTART: dict[str, Any] = {
    "apiVersion": "inference.sagemaker.aws.amazon.com/v1",
    "kind": "JumpStartModel",
    "metadata": {"name": "deepseek"},
    "spec": {
        "model": {"modelId": "deepseek-llm-r1-distill-qwen-1-5b"},
        "server": {"instanceType": "ml.g5.8xlarge"},
        "metrics": {"enabled": True, "metricsScrapeIntervalSeconds": 30},
        "kvCacheSpec": {
            "enableL1Cache": True,
            "enableL2Cache": True,
            "l2CacheSpec": {"l2CacheBackend": "redis", "l2CacheLocalUrl": "redis://r:6379"},
        },
        "intelligentRoutingSpec": {"enabled": True, "routingStrategy": "kvaware"},
        "autoScalingSpec": {
            "minReplicaCount": 1,
            "maxReplicaCount": 3,
            "prometheusTrigger": {
                "serverAddress": "http://prometheus:9090", "query": "up", "targetValue": 1,
            },
        },
        "loadBalancer": {"healthCheckPath": "/health"},
    },
}  # fmt: skip


def test_jumpstart_takes_the_blocks_of_its_definition() -> None:
    flat = importer.flat(read(JUMPSTART))
    assert flat["monitoring.interval_s"] == 30
    assert (flat["cache.l2.enabled"], flat["cache.l2.url"]) == (True, "redis://r:6379")
    assert (flat["routing.enabled"], flat["routing.strategy"]) == (True, "kvaware")
    assert (flat["scaling.enabled"], flat["scaling.max"]) == (True, 3)
    assert len(flat["scaling.triggers"]) == 1
    wrong = put(JUMPSTART, "spec/kvCacheSpec/l2CacheSpec/l2CacheLocalUrl", None)
    assert refusals(wrong)["spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl"].code == "required"
    bare = copy.deepcopy(JUMPSTART)
    for name in ("metrics", "kvCacheSpec", "intelligentRoutingSpec", "autoScalingSpec"):
        del bare["spec"][name]
    assert not any(path.startswith(("cache.", "routing.")) for path in importer.flat(read(bare)))


def test_jumpstart_requests_the_gpus_of_its_instance_type() -> None:
    names = ("resources.gpus", "resources.cpus", "resources.memory_gib")
    flat = importer.flat(read(JUMPSTART))
    assert [flat[name] for name in names] == [1, 16, 64]
    own = put(JUMPSTART, "metadata/annotations", {"emberline.dev/resources.cpus": "4"})
    assert importer.flat(read(own))["resources.cpus"] == 4
    unknown = importer.flat(read(put(JUMPSTART, "spec/server/instanceType", "ml.new.large")))
    assert not unknown.keys() & set(names)


# -- texts that are something else


def test_lost_indentation_is_recognised() -> None:
    text = documents.to_yaml(LEAST)
    flat = "\n".join(line.strip() for line in text.splitlines())
    with pytest.raises(SpecErrors, match="lost its indentation"):
        documents.read_documents(flat)
    assert documents.read_documents(json.dumps(LEAST)) == [LEAST]
    beside = copy.deepcopy(LEAST)
    beside.update(beside.pop("spec"))
    found = refusals(beside)
    assert found["modelName"].code == "indentation"
    assert "modelName, instanceType, modelSourceConfig, worker stand beside spec" in (
        found["modelName"].message
    )


@pytest.mark.django_db
def test_tabs_are_named() -> None:
    with pytest.raises(SpecErrors) as raised:
        documents.read_documents("kind: X\nspec:\n\tmodelName: y\n")
    assert raised.value.errors[0].remedy == "Indent with spaces."


def test_values_of_production_stack_are_explained() -> None:
    values = {
        "servingEngineSpec": {
            "modelSpec": [
                {
                    "name": "llama3", "repository": "vllm/vllm-openai", "replicaCount": 2,
                    "modelURL": HUB, "requestCPU": 6, "requestMemory": "16Gi", "requestGPU": 1,
                }
            ]
        },
        "routerSpec": {"routingLogic": "roundrobin"},
    }  # fmt: skip
    with pytest.raises(SpecErrors) as caught:
        manifest_actions.plan(SYSTEM, [values])
    (error,) = caught.value.errors
    assert error.code == "helm_values"
    assert (
        f"emberline endpoint create llama3 --model {HUB} --cluster CLUSTER --set replicas=2 "
        "--set resources.cpus=6 --set resources.gpus=1 --set resources.memory_gib=16"
    ) in error.remedy


@pytest.mark.django_db
def test_configuration_of_hyp_init_is_read(east: Cluster) -> None:
    config = {
        "template": "hyp-custom-endpoint", "version": "1.0", "metadata_name": "llama",
        "namespace": "team-a", "instance_type": "ml.g5.8xlarge", "model_name": "llama",
        "model_source_type": "s3", "model_location": "llama", "s3_bucket_name": "weights",
        "s3_region": "us-west-2", "image_uri": "vllm/vllm-openai:v0.10.0", "container_port": 8000,
        "model_volume_mount_name": "model-weights", "env": {"A": "1"}, "endpoint_name": None,
        "resources_requests": {"cpu": "6", "memory": "30Gi", "nvidia.com/gpu": 1},
        "resources_limits": {"nvidia.com/gpu": 1},
    }  # fmt: skip
    (planned,) = manifest_actions.plan(SYSTEM, [config], ManifestTarget(east.name))
    assert planned.name == "llama"
    assert planned.data["source"]["bucket"] == "weights"
    assert planned.data["pod"]["env"] == {"A": "1"}
    with pytest.raises(SpecErrors, match="fancy_new_field"):
        manifest_actions.plan(SYSTEM, [config | {"fancy_new_field": 1}], ManifestTarget(east.name))


# -- places and the diff


@pytest.mark.django_db
def test_error_names_what_stands_in_the_file(east: Cluster) -> None:
    second = {"enableL2Cache": True, "l2CacheSpec": {"l2CacheBackend": "tieredstorage"}}
    document = put(LEAST, "spec/kvCacheSpec", second)
    document["metadata"]["annotations"] = {"emberline.dev/cache.l2.tier": "absent"}
    with pytest.raises(SpecErrors) as annotated:
        manifest_actions.plan(SYSTEM, [document], ManifestTarget(east.name))
    assert {error.field for error in annotated.value.errors} == {
        "metadata.annotations[emberline.dev/cache.l2.tier]"
    }
    huge = put(LEAST, "spec/worker/resources/requests/memory", "1Mi")
    with pytest.raises(SpecErrors) as caught:
        manifest_actions.plan(SYSTEM, [huge], ManifestTarget(east.name))
    assert not any("annotations" in error.field for error in caught.value.errors)


def test_error_of_a_field_without_a_place_names_no_absent_annotation() -> None:
    error = Problem("exposure.host", "x", "It is taken.", "Choose another.", "taken")
    absent = importer.locate_in_object(error, read(copy.deepcopy(LEAST)))
    assert absent.field == "spec"
    assert absent.remedy.endswith("The annotation emberline.dev/exposure.host sets it.")
    there = put(LEAST, "metadata/annotations", {"emberline.dev/exposure.host": "a.example"})
    place = "metadata.annotations[emberline.dev/exposure.host]"
    assert importer.locate_in_object(error, read(there)).field == place


@pytest.mark.django_db
def test_cluster_is_asked_for_by_its_flag() -> None:
    with pytest.raises(SpecErrors, match=r"--cluster NAME"):
        manifest_actions.plan(SYSTEM, [copy.deepcopy(LEAST)])


def test_diff_shows_arguments_but_no_secret() -> None:
    shown = redact(
        "worker_args",
        [
            "--max-model-len", "4096", "--max-num-batched-tokens=8192", "--tokenizer", "org/t",
            "--api-key", "sk-1", "--hf-token=hf_1", "--otlp-traces-endpoint=http://u:pw@host/x",
            "--speculative-config", '{"model": "m", "api_key": "sk-2"}', "--auth-token", "t",
        ],
    )  # fmt: skip
    assert shown[:5] == [
        "--max-model-len", "4096", "--max-num-batched-tokens=8192", "--tokenizer", "org/t",
    ]  # fmt: skip
    text = json.dumps(shown)
    for secret in ("sk-1", "hf_1", "pw", "sk-2", '"t"'):
        assert secret not in text, text


def test_objects_round_trip_after_the_notices() -> None:
    document = with_args("--served-model-name", "llama", "--max-model-len", "4096")
    assert objects.read(document).whole["spec"]["worker"]["args"][0] == "--served-model-name"


@pytest.mark.parametrize(
    ("image", "own"),
    [
        ("ghcr.io/acme/emberline-worker:0.2.0", ""),
        ("registry.example:5000/llm/runtime:2", "registry.example:5000/llm/runtime:1"),
        ("registry.example/llm@sha256:" + "a" * 64, "registry.example/llm:1"),
    ],
)
def test_own_worker_image_is_vllm(image: str, own: str) -> None:
    document = put(put(LEAST, "spec/worker/image", image), "spec/worker/args", ["--seed", "1"])
    flat = importer.flat(objects.read(document, own))
    assert flat["cache.l1.enabled"] is True
    assert not [
        note for note in advice.notes(objects.read(document, own)) if note.code == "not_vllm"
    ]
    other = importer.flat(
        objects.read(put(document, "spec/worker/image", "registry.example/x:1"), own)
    )
    assert other["cache.l1.enabled"] is False
