"""Supported kinds and the schemas of their versions."""

from __future__ import annotations

import copy
import json
from functools import cache
from importlib import resources
from typing import Any, Final

GROUP: Final = "inference.sagemaker.aws.amazon.com"
OTHER_GROUPS: Final = ("hyperpod.sagemaker.aws", "hyperpod.sagemaker.aws.amazon.com")
"""Groups in published texts about the same kinds, read as `GROUP`."""
KIND: Final = "InferenceEndpointConfig"
JUMPSTART: Final = "JumpStartModel"
OLD_JUMPSTART: Final = "ModelDeployment"
"""Name of JumpStartModel in early samples, with the same fields."""
VERSIONS: Final = ("v1", "v1alpha1")
PLURAL: Final = "inferenceendpointconfigs"

_FILES = {
    (KIND, "v1"): "inferenceendpointconfig-v1.json",
    (KIND, "v1alpha1"): "inferenceendpointconfig-v1alpha1.json",
    (JUMPSTART, "v1"): "jumpstartmodel-v1.json",
    (JUMPSTART, "v1alpha1"): "jumpstartmodel-v1.json",
    (OLD_JUMPSTART, "v1"): "jumpstartmodel-v1.json",
    (OLD_JUMPSTART, "v1alpha1"): "jumpstartmodel-v1.json",
}
KINDS: Final = tuple(dict.fromkeys(kind for kind, _ in _FILES))


def is_known(kind: str, version: str) -> bool:
    return (kind, version) in _FILES


# Blocks that a JumpStartModel has in common with an InferenceEndpointConfig.
_SHARED_BLOCKS = (
    *("autoScalingSpec", "intelligentRoutingSpec", "kvCacheSpec", "loadBalancer", "metrics"),
)


@cache
def spec_schema(kind: str, version: str) -> dict[str, Any]:
    """Return the schema of `spec`. Shared between callers: do not modify."""
    schema: dict[str, Any] = _file(_FILES[kind, version])["spec"]
    if kind == KIND:
        return schema
    blocks = spec_schema(KIND, version)["properties"]
    shared = {name: blocks[name] for name in _SHARED_BLOCKS if name in blocks}
    return schema | {"properties": schema["properties"] | shared}


def status_schema(version: str = "v1") -> dict[str, Any]:
    return _file(_FILES[KIND, version])["status"]


@cache
def _file(name: str) -> dict[str, Any]:
    text = resources.files(__package__).joinpath("schema", name).read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


NAME: Final = f"{PLURAL}.{GROUP}"
OWN_LABEL: Final = {
    "app.kubernetes.io/name": "emberline",
    "app.kubernetes.io/managed-by": "emberline",
}
AMP_ADDRESS = "^https:\\/\\/aps-workspaces\\."
ANY_ADDRESS: Final = r"^(https?://[^\s]+)?$"
_SUBRESOURCES = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
}
_COLUMNS = (
    {"name": "State", "type": "string", "jsonPath": ".status.state"},
    {"name": "Replicas", "type": "integer", "jsonPath": ".status.replicas"},
    {
        "name": "Ready",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
    },
    {
        "name": "Reason",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].reason',
    },
    {"name": "URL", "type": "string", "jsonPath": ".status.url", "priority": 1},
    {"name": "Model", "type": "string", "jsonPath": ".spec.modelName", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
)


def definition() -> dict[str, Any]:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME, "labels": dict(OWN_LABEL)},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
            },
            "scope": "Namespaced",
            "versions": [_version(version) for version in VERSIONS],
        },
    }


@cache
def relaxed_spec(kind: str, version: str) -> dict[str, Any]:
    """Return the relaxed schema of `spec`. Shared between callers: do not modify."""
    schema = copy.deepcopy(spec_schema(kind, version))
    _relax_schema(schema)
    return schema


def _version(version: str) -> dict[str, Any]:
    status = copy.deepcopy(status_schema(version))
    status["properties"]["url"] = {"type": "string"}
    return {
        "name": version,
        "served": True,
        "storage": version == VERSIONS[0],
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "kind": {"type": "string"},
                    "metadata": {"type": "object"},
                    "spec": relaxed_spec(KIND, version),
                    "status": status,
                },
            }
        },
        "subresources": _SUBRESOURCES,
        "additionalPrinterColumns": list(_COLUMNS),
    }


def _relax_schema(schema: Any) -> None:
    if isinstance(schema, dict):
        if str(schema.get("pattern", "")).startswith(AMP_ADDRESS):
            schema["pattern"] = ANY_ADDRESS
        for part in schema.values():
            _relax_schema(part)
    elif isinstance(schema, list):
        for part in schema:
            _relax_schema(part)
