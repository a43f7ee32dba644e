"""Recognition of texts that are not manifests of a known kind: explain them, or read them as one.

Helm values of the vLLM production-stack, configurations of `hyp init`, and manifests that lost
their indentation in a copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from console.core.errors import Problem
from endpoints.manifests import schemas
from endpoints.manifests.structural_schema import schema_error

_HELM_KEYS: Final = frozenset({"servingEngineSpec", "routerSpec"})
_MIN_LINES = 5
_SHOWN = 6
_Path = tuple[str, ...]
# Field of `config.yaml` that `hyp init` writes, and its place in the object.
_HYP_COMMON: Final[Mapping[str, _Path]] = {
    "metadata_name": ("metadata", "name"),
    "name": ("metadata", "name"),
    "namespace": ("metadata", "namespace"),
    "endpoint_name": ("spec", "endpointName"),
    "tls_certificate_output_s3_uri": ("spec", "tlsConfig", "tlsCertificateOutputS3Uri"),
}
_HYP_CUSTOM: Final[Mapping[str, _Path]] = {
    **_HYP_COMMON,
    "instance_type": ("spec", "instanceType"),
    "model_name": ("spec", "modelName"),
    "model_version": ("spec", "modelVersion"),
    "replicas": ("spec", "replicas"),
    "initial_replica_count": ("spec", "replicas"),
    "invocation_endpoint": ("spec", "invocationEndpoint"),
    "model_source_type": ("spec", "modelSourceConfig", "modelSourceType"),
    "model_location": ("spec", "modelSourceConfig", "modelLocation"),
    "prefetch_enabled": ("spec", "modelSourceConfig", "prefetchEnabled"),
    "s3_bucket_name": ("spec", "modelSourceConfig", "s3Storage", "bucketName"),
    "s3_region": ("spec", "modelSourceConfig", "s3Storage", "region"),
    "fsx_dns_name": ("spec", "modelSourceConfig", "fsxStorage", "dnsName"),
    "fsx_file_system_id": ("spec", "modelSourceConfig", "fsxStorage", "fileSystemId"),
    "fsx_mount_name": ("spec", "modelSourceConfig", "fsxStorage", "mountName"),
    "image_uri": ("spec", "worker", "image"),
    "container_port": ("spec", "worker", "modelInvocationPort", "containerPort"),
    "model_volume_mount_name": ("spec", "worker", "modelVolumeMount", "name"),
    "model_volume_mount_path": ("spec", "worker", "modelVolumeMount", "mountPath"),
    "resources_requests": ("spec", "worker", "resources", "requests"),
    "resources_limits": ("spec", "worker", "resources", "limits"),
    "env": ("spec", "worker", "environmentVariables"),
    "metrics_enabled": ("spec", "metrics", "enabled"),
}
_HYP_JUMPSTART: Final[Mapping[str, _Path]] = {
    **_HYP_COMMON,
    "model_id": ("spec", "model", "modelId"),
    "model_version": ("spec", "model", "modelVersion"),
    "accept_eula": ("spec", "model", "acceptEula"),
    "instance_type": ("spec", "server", "instanceType"),
    "accelerator_partition_type": ("spec", "server", "acceleratorPartitionType"),
    "endpoint_name": ("spec", "sageMakerEndpoint", "name"),
    "env": ("spec", "environmentVariables"),
}
_HYP_TEMPLATES: Final[Mapping[str, tuple[str, Mapping[str, _Path]]]] = {
    "hyp-custom-endpoint": (schemas.KIND, _HYP_CUSTOM),
    "hyp-jumpstart-endpoint": (schemas.JUMPSTART, _HYP_JUMPSTART),
}


def lost_indentation(text: str) -> str:
    """Return an explanation if a manifest has no indented line at all, else ""."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    is_manifest = re.search(r"^kind:", text, re.MULTILINE) and re.search(r"^spec:", text, re.M)
    if not is_manifest or len(lines) < _MIN_LINES or any(line[0] in " \t{" for line in lines):
        return ""
    return "Every line begins at the margin: the text has lost its indentation"


def misplaced(document: Mapping[str, Any], kind: str, version: str) -> Iterator[Problem]:
    """Yield one problem for all fields beside `spec` that belong below it."""
    properties = schemas.spec_schema(kind, version).get("properties", {})
    lost = [key for key in document if key in properties]
    if lost:
        names = ", ".join(lost[:_SHOWN])
        yield schema_error(
            lost[0],
            None,
            f"{names} {'stands' if len(lost) == 1 else 'stand'} beside spec: the text has lost its "
            "indentation.",
            "Indent them below spec, and the fields of worker below worker, by two spaces each.",
            "indentation",
        )


def explain(document: Mapping[str, Any]) -> Problem | None:
    """Return what a Helm values file is, and the commands that have its effect."""
    if _HELM_KEYS.isdisjoint(document):
        return None
    section = document.get("servingEngineSpec")
    models = section.get("modelSpec") if isinstance(section, Mapping) else None
    commands = [_command(item) for item in models or [] if isinstance(item, Mapping)]
    remedy = "Create an endpoint for each model: " + "; ".join(commands or [_command({})])
    key = next(key for key in document if key in _HELM_KEYS)
    text = "This is a values file of the vLLM production-stack's Helm chart, not a manifest."
    return schema_error(key, None, text, f"{remedy}.", "helm_values")


def _command(model: Mapping[str, Any]) -> str:
    parts = [
        "emberline endpoint create",
        str(model.get("name") or "NAME"),
        f"--model {model.get('modelURL') or 'MODEL'}",
        "--cluster CLUSTER",
    ]
    settings = {
        "replicas": model.get("replicaCount"),
        "resources.cpus": model.get("requestCPU"),
        "resources.gpus": model.get("requestGPU"),
        "resources.memory_gib": str(model.get("requestMemory") or "").removesuffix("Gi"),
    }
    parts += [f"--set {name}={value}" for name, value in settings.items() if value]
    return " ".join(parts)


def convert(document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the object that a configuration of `hyp init` stands for; None for anything else.

    Fields without a place stay in `spec`, where they are named as unknown.
    """
    template = _HYP_TEMPLATES.get(str(document.get("template")))
    if template is None:
        return None
    kind, places = template
    made: dict[str, Any] = {
        "apiVersion": f"{schemas.GROUP}/v1", "kind": kind, "metadata": {}, "spec": {},
    }  # fmt: skip
    for key, value in document.items():
        if key in ("template", "version") or value is None or value == "":
            continue
        *folders, name = places.get(key, ("spec", key))
        place = made
        for folder in folders:
            place = place.setdefault(folder, {})
        if key == "env" and isinstance(value, Mapping):
            value = [{"name": each, "value": str(text)} for each, text in value.items()]
        place[name] = value
    return made
