"""Published samples with filled placeholders, and a minimal object."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from console.core.errors import Problem
from endpoints.manifests import documents, objects, rules
from endpoints.manifests.objects import Manifest
from endpoints.spec.endpoint_spec import SpecErrors

SAMPLES = sorted((Path(__file__).parent / "samples").glob("*.yaml"))
_FILLED = {
    "<PLACEHOLDER_MODEL_STORAGE_BUCKET>": "weights",
    "<PLACEHOLDER_TLS_CERT_S3_URI>": "s3://tls-certs/certs",
    "<PLACEHOLDER_L2_CACHE_LOCAL_URL>": "redis://redis.ns-team-a.svc.cluster.local:6379",
}
LEAST: dict[str, Any] = {
    "apiVersion": "inference.sagemaker.aws.amazon.com/v1",
    "kind": "InferenceEndpointConfig",
    "metadata": {"name": "llama", "namespace": "team-a"},
    "spec": {
        "modelName": "Llama-3.1-8B-Instruct",
        "instanceType": "ml.g5.8xlarge",
        "modelSourceConfig": {
            "modelSourceType": "huggingface",
            "huggingFaceModel": {"modelId": "meta-llama/Llama-3.1-8B-Instruct"},
        },
        "worker": {
            "image": "vllm/vllm-openai:v0.10.0",
            "args": ["--max-model-len", "4096"],
            "modelInvocationPort": {"containerPort": 8000},
            "modelVolumeMount": {"name": "model-weights"},
            "resources": {
                "requests": {"cpu": "6", "memory": "30Gi", "nvidia.com/gpu": 1},
                "limits": {"nvidia.com/gpu": 1},
            },
        },
    },
}


def sample(path: Path) -> dict[str, Any]:
    """As published, its placeholders filled in."""
    text = path.read_text(encoding="utf-8")
    for placeholder, value in _FILLED.items():
        text = text.replace(placeholder, value)
    return documents.read_documents(text)[0]


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at a dotted path; None removes it."""
    changed = copy.deepcopy(document)
    *parents, leaf = path.split("/")
    place = changed
    for parent in parents:
        place = place.setdefault(parent, {})
    if value is None:
        place.pop(leaf, None)
    else:
        place[leaf] = value
    return changed


def refusals(document: dict[str, Any]) -> dict[str, Problem]:
    """What is refused, by path: of the shape, or (the shape being right) across fields."""
    try:
        found = rules.errors(objects.read(document))
    except SpecErrors as error:
        found = list(error.errors)
    return {item.field: item for item in found}


def read(document: dict[str, Any]) -> Manifest:
    assert refusals(document) == {}
    return objects.read(document)


@pytest.fixture
def least() -> dict[str, Any]:
    return copy.deepcopy(LEAST)
