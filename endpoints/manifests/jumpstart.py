"""JumpStartModel (formerly ModelDeployment), as far as supported outside AWS.

Weights are in a hub readable by AWS's operator only. A few models map to their publisher's
repository, with an advisory; all others need an annotation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from console.catalogue.core.builtin import BUILTIN, GIB
from console.core.errors import Problem
from endpoints.manifests.extensions import PREFIX, place_of
from endpoints.manifests.objects import Manifest, Note, NoteMark
from endpoints.manifests.structural_schema import schema_error

_DISTILLED = "deepseek-ai/DeepSeek-R1-Distill-"
KNOWN: Final[Mapping[str, str]] = {
    **{
        f"deepseek-llm-r1-distill-{theirs}": f"{_DISTILLED}{published}"
        for theirs, published in (
            ("qwen-1-5b", "Qwen-1.5B"),
            ("qwen-7b", "Qwen-7B"),
            ("qwen-14b", "Qwen-14B"),
            ("qwen-32b", "Qwen-32B"),
            ("llama-8b", "Llama-8B"),
            ("llama-70b", "Llama-70B"),
        )
    },
    "meta-textgeneration-llama-3-1-8b": "meta-llama/Llama-3.1-8B",
    "meta-textgeneration-llama-3-1-8b-instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "meta-textgeneration-llama-3-1-70b": "meta-llama/Llama-3.1-70B",
    "meta-textgeneration-llama-3-1-70b-instruct": "meta-llama/Llama-3.1-70B-Instruct",
}
_SOURCES = ("source.location", "source.bucket", "source.claim", "source.file_system")


def fields(manifest: Manifest) -> dict[str, Any]:
    spec = manifest.spec
    server = spec["server"]
    fields_read: dict[str, Any] = {
        "model": spec["model"]["modelId"],
        "engine": "vllm",
        "source.type": "huggingface",
        "source.location": KNOWN.get(spec["model"]["modelId"], ""),
        "placement.instance_types": [server["instanceType"]],
        "replicas": spec.get("replicas", server.get("minAutoScaleReplicas", 1)),
        "pod.env": {
            item["name"]: item.get("value", "") for item in spec.get("environmentVariables") or []
        },
    }
    least, most = server.get("minAutoScaleReplicas", 1), server.get("maxAutoScaleReplicas", 1)
    fields_read |= _resources(server["instanceType"])
    if most > least:
        fields_read |= {"scaling.enabled": True, "scaling.min": least, "scaling.max": most}
    return fields_read


def _resources(name: str) -> dict[str, Any]:
    """Return those of one worker per instance; half of the processors and memory is for others."""
    instance = BUILTIN.get(name)
    if instance is None:
        return {}
    return {
        "resources.gpus": instance.gpus,
        "resources.cpus": instance.vcpus / 2,
        "resources.memory_gib": instance.memory_bytes / GIB / 2,
    }


def errors(manifest: Manifest) -> Iterator[Problem]:
    model = manifest.spec["model"]["modelId"]
    if model not in KNOWN and not any(f"{PREFIX}{p}" in manifest.annotations for p in _SOURCES):
        yield schema_error(
            "spec.model.modelId",
            model,
            "Only AWS can read this model's weights from its hub.",
            f"Set another source, such as {PREFIX}source.location: organisation/name.",
            "unknown_model",
        )
    if not manifest.spec["model"].get("acceptEula") and "llama" in model.lower():
        remedy = "Read the model's licence, then set acceptEula: true."
        yield schema_error(
            "spec.model.acceptEula", False, "Its licence must be accepted.", remedy, "licence"
        )


def notes(manifest: Manifest) -> Iterator[Note]:
    model = manifest.spec["model"]["modelId"]
    location = place_of("source.location")
    if model in KNOWN and f"{PREFIX}source.location" not in manifest.annotations:
        yield Note(
            "spec.model.modelId",
            "taken_from_publisher",
            f"The weights are downloaded from Hugging Face: {KNOWN[model]}.",
            f"Override it with {location}.",
        )
    for name in ("modelVersion", "modelHubName", "gatedModelDownloadRole", "additionalConfigs"):
        if name in manifest.spec["model"]:
            path = f"spec.model.{name}"
            yield Note(path, "only_aws", "Applies to AWS's hub only.", "", NoteMark.KEPT)
    for name in ("acceleratorPartitionType", "executionRole", "namespace"):
        if name in manifest.spec["server"]:
            path = f"spec.server.{name}"
            yield Note(path, "only_aws", "Has no effect here.", "", NoteMark.KEPT)
    instance = manifest.spec["server"]["instanceType"]
    applied = "the endpoint defaults apply"
    if instance in BUILTIN:
        applied = f"a worker requests all GPUs and half of the vCPUs and memory of {instance}"
    yield Note(
        "spec.server.instanceType",
        "resources_unsaid",
        f"The kind has no vCPUs, memory or GPUs: {applied}.",
        f"Set them with annotations, such as {place_of('resources.gpus')}.",
    )
