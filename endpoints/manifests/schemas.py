"""Which kinds of object are read, and the schema of each version. Must not know Django."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Final

GROUP: Final = "inference.sagemaker.aws.amazon.com"
KIND: Final = "InferenceEndpointConfig"
JUMPSTART: Final = "JumpStartModel"
OLD_JUMPSTART: Final = "ModelDeployment"
"""What JumpStartModel was called in the first samples; it has the same fields."""
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


def known(kind: str, version: str) -> bool:
    return (kind, version) in _FILES


def spec_schema(kind: str, version: str) -> dict[str, Any]:
    """Of `spec`. Shared between callers: not to be changed."""
    return _file(_FILES[kind, version])["spec"]


def status_schema(version: str = "v1") -> dict[str, Any]:
    return _file(_FILES[KIND, version])["status"]


@cache
def _file(name: str) -> dict[str, Any]:
    text = resources.files(__package__).joinpath("schema", name).read_text(encoding="utf-8")
    data: dict[str, Any] = json.loads(text)
    return data
