"""Import an InferenceEndpointConfig as endpoint fields.

Equal objects give equal fields; the whole object is stored with them. An annotation
`emberline.dev/FIELD` overrides the object's own field. Errors and advisories are in `rules`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from console.core.errors import Problem
from endpoints.manifests import extensions, jumpstart, schemas, triggers, worker
from endpoints.manifests.objects import Manifest
from endpoints.spec.endpoint_spec import nest

Flat = dict[str, Any]
LONGEST_NAME = 40
DEADLINE_S = 3600
"""Default of the manifest's schema."""
_SOURCES = {"s3": "s3", "fsx": "fsx", "huggingface": "huggingface", "kubernetesVolume": "pvc"}
SOURCE_BLOCKS = {"s3": "s3Storage", "fsx": "fsxStorage", "huggingface": "huggingFaceModel"}
SCALING_FIELDS: tuple[tuple[str, str, Any], ...] = (
    ("minReplicaCount", "scaling.min", 1),
    ("maxReplicaCount", "scaling.max", 5),
    ("pollingInterval", "scaling.polling_s", 30),
    ("cooldownPeriod", "scaling.cooldown_s", 300),
    ("initialCooldownPeriod", "scaling.initial_cooldown_s", 300),
    ("scaleUpStabilizationTime", "scaling.up_stabilization_s", 0),
    ("scaleDownStabilizationTime", "scaling.down_stabilization_s", 300),
)
"""Manifest field, endpoint field, manifest default."""
_SOURCE = "spec.modelSourceConfig"
_WORKER = "spec.worker"
_CACHE = "spec.kvCacheSpec"
_ROUTING = "spec.intelligentRoutingSpec"
_SCALING = "spec.autoScalingSpec"
PLACES: Mapping[str, str] = {
    "name": "metadata.name",
    "model": "spec.modelName",
    "replicas": "spec.replicas",
    "tags": "spec.tags",
    "rollout.deadline_s": "spec.maxDeployTimeInSeconds",
    "placement.namespace": "metadata.namespace",
    "placement.instance_types": "spec.instanceType",
    "placement.node_affinity": "spec.nodeAffinity",
    "placement.scheduler": "spec.kubernetes.schedulerName",
    "source.type": f"{_SOURCE}.modelSourceType",
    "source.location": f"{_SOURCE}.modelLocation",
    "source.prefetch": f"{_SOURCE}.prefetchEnabled",
    "source.bucket": f"{_SOURCE}.s3Storage.bucketName",
    "source.region": f"{_SOURCE}.s3Storage.region",
    "source.file_system": f"{_SOURCE}.fsxStorage.fileSystemId",
    "source.dns_name": f"{_SOURCE}.fsxStorage.dnsName",
    "source.mount_name": f"{_SOURCE}.fsxStorage.mountName",
    "source.revision": f"{_SOURCE}.huggingFaceModel.commitSHA",
    "source.token_secret": f"{_SOURCE}.huggingFaceModel.tokenSecretRef.name",
    "source.token_key": f"{_SOURCE}.huggingFaceModel.tokenSecretRef.key",
    "source.claim": "spec.kubernetes.volumes",
    "source.mount_path": f"{_WORKER}.modelVolumeMount.mountPath",
    "pod.image": f"{_WORKER}.image",
    "pod.command": f"{_WORKER}.command",
    "pod.working_dir": f"{_WORKER}.workingDir",
    "pod.port": f"{_WORKER}.modelInvocationPort.containerPort",
    "pod.env": f"{_WORKER}.environmentVariables",
    "pod.env_from": f"{_WORKER}.environmentVariables",
    "pod.probes": f"{_WORKER}.probes",
    "pod.resources": f"{_WORKER}.resources",
    "pod.volumes": "spec.kubernetes.volumes",
    "pod.init_containers": "spec.kubernetes.initContainers",
    "pod.service_account": "spec.kubernetes.serviceAccountName",
    "worker_args": f"{_WORKER}.args",
    "resources.cpus": f"{_WORKER}.resources.requests[cpu]",
    "resources.memory_gib": f"{_WORKER}.resources.requests[memory]",
    "resources.gpus": f"{_WORKER}.resources.limits[nvidia.com/gpu]",
    "cache.l1.enabled": f"{_CACHE}.enableL1Cache",
    "cache.l2.enabled": f"{_CACHE}.enableL2Cache",
    "cache.l2.backend": f"{_CACHE}.l2CacheSpec.l2CacheBackend",
    "cache.l2.tier": f"{_CACHE}.l2CacheSpec.l2CacheBackend",
    "cache.l1.size_gib": f"{_WORKER}.resources.requests[memory]",
    "aliases": f"{_WORKER}.args",
    "cache.l2.url": f"{_CACHE}.l2CacheSpec.l2CacheLocalUrl",
    "routing.enabled": f"{_ROUTING}.enabled",
    "routing.strategy": f"{_ROUTING}.routingStrategy",
    "router.replicas": f"{_ROUTING}.autoScalingSpec.minReplicaCount",
    "router.max_replicas": f"{_ROUTING}.autoScalingSpec.maxReplicaCount",
    "scaling.enabled": _SCALING,
    "scaling.triggers": _SCALING,
    **{path: f"{_SCALING}.{name}" for name, path, _ in SCALING_FIELDS},
    "limits.max_concurrent": f"{_WORKER}.requestLimits.maxConcurrentRequests",
    "limits.max_queue": f"{_WORKER}.requestLimits.maxQueueSize",
    "limits.overflow_status": f"{_WORKER}.requestLimits.overflowStatusCode",
    "monitoring.enabled": "spec.metrics.enabled",
    "monitoring.interval_s": "spec.metrics.metricsScrapeIntervalSeconds",
    "monitoring.path": "spec.metrics.modelMetrics.path",
    "pd.enabled": "spec.pdSpec",
    "pd.prefill": "spec.pdSpec.prefillSpec",
    "pd.decode": "spec.pdSpec.decodingSpec",
    "pd.threshold": "spec.pdSpec.routingThreshold",
    "pd.topology": "spec.pdSpec.topologySpec",
}
"""Path in a manifest of each endpoint field, for error messages."""


def data(manifest: Manifest) -> dict[str, Any]:
    return nest(flat(manifest) | {"manifest": dict(manifest.whole)})


def flat(manifest: Manifest) -> Flat:
    """Return the fields by path, without `manifest` and the cluster."""
    annotated = extensions.fields(manifest.annotations)
    if manifest.kind != schemas.KIND:
        fields_read = jumpstart.fields(manifest) | _shared_blocks(manifest.spec)
    else:
        fields_read = _fields(manifest.spec, annotated, manifest.own_image)
    fields_read["rollout.deadline_s"] = manifest.spec.get("maxDeployTimeInSeconds", DEADLINE_S)
    if manifest.spec.get("tags"):
        fields_read["tags"] = {tag["name"]: tag["value"] for tag in manifest.spec["tags"]}
    fields_read["name"] = name_of(manifest)
    if manifest.namespace:
        fields_read["placement.namespace"] = manifest.namespace
    return fields_read | annotated


def name_of(manifest: Manifest) -> str:
    name = manifest.name or str(manifest.spec.get("endpointName", ""))
    return short_name(name)


def short_name(given: str) -> str:
    """Return at most 40 characters starting with a letter; a truncated name gets a hash suffix."""
    name = re.sub(r"[^a-z0-9-]+", "-", given.lower()).strip("-")
    if not name or not name[0].isalpha():
        name = f"e-{name}".rstrip("-")
    if len(name) <= LONGEST_NAME:
        return name
    mark = hashlib.sha256(given.encode()).hexdigest()[:6]
    return f"{name[: LONGEST_NAME - 7].rstrip('-')}-{mark}"


def _fields(spec: Mapping[str, Any], annotated: Mapping[str, Any], own_image: str) -> Flat:
    is_vllm = worker.serves_vllm(spec["worker"], own_image)
    cache = _cache(spec, is_vllm)
    enabled = annotated.get("cache.l1.enabled", cache["cache.l1.enabled"])
    fields_read = worker.fields(spec["worker"], spec["modelName"], model_names(spec)) | cache
    fields_read |= worker.sizes(spec["worker"], annotated.get("cache.l1.size_gib"), bool(enabled))
    fields_read["model"] = spec["modelName"]
    fields_read["engine"] = "vllm"
    fields_read["replicas"] = spec.get("replicas", 1)
    fields_read |= _source(spec)
    fields_read |= _routing(spec, is_vllm)
    fields_read |= _placement(spec)
    fields_read |= _scaling(spec)
    fields_read |= _monitoring(spec.get("metrics") or {})
    return fields_read | _kubernetes(spec) | _pd(spec.get("pdSpec"))


def model_names(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names by which arguments may repeat the model: its own, hub ID and location."""
    source = spec["modelSourceConfig"]
    hub = source.get("huggingFaceModel") or {}
    named = (spec["modelName"], hub.get("modelId"), source.get("modelLocation"))
    return tuple(dict.fromkeys(filter(None, named)))


def _source(spec: Mapping[str, Any]) -> Flat:
    source = spec["modelSourceConfig"]
    kind = source["modelSourceType"]
    flat_fields: Flat = {
        "source.type": _SOURCES[kind],
        "source.location": source.get("modelLocation", ""),
        "source.prefetch": source.get("prefetchEnabled", False),
    }
    if kind == "s3":
        storage = source.get("s3Storage") or {}
        flat_fields["source.bucket"] = storage.get("bucketName", "")
        flat_fields["source.region"] = storage.get("region", "")
    elif kind == "fsx":
        storage = source.get("fsxStorage") or {}
        flat_fields["source.file_system"] = storage.get("fileSystemId", "")
        flat_fields["source.dns_name"] = storage.get("dnsName", "")
        flat_fields["source.mount_name"] = storage.get("mountName", "")
    elif kind == "huggingface":
        hub = source.get("huggingFaceModel") or {}
        secret = hub.get("tokenSecretRef") or {}
        flat_fields["source.location"] = hub.get("modelId", "")
        flat_fields["source.revision"] = hub.get("commitSHA", "")
        flat_fields["source.token_secret"] = secret.get("name", "")
        flat_fields["source.token_key"] = secret.get("key", "")
    else:
        flat_fields["source.claim"] = claim_of(spec)
    return flat_fields


def claim_of(spec: Mapping[str, Any]) -> str:
    mount_name = spec["worker"]["modelVolumeMount"]["name"]
    for volume in (spec.get("kubernetes") or {}).get("volumes") or []:
        if volume["name"] == mount_name:
            return str((volume.get("persistentVolumeClaim") or {}).get("claimName", ""))
    return ""


def _shared_blocks(spec: Mapping[str, Any]) -> Flat:
    """Return the fields of the blocks that a JumpStartModel has, all of which are optional."""
    fields: Flat = {}
    if "kvCacheSpec" in spec:
        fields |= _cache(spec, True)
    if "intelligentRoutingSpec" in spec:
        fields |= _routing(spec, True)
    if "metrics" in spec:
        fields |= _monitoring(spec["metrics"])
    return fields | _scaling(spec)


def _cache(spec: Mapping[str, Any], is_vllm: bool) -> Flat:
    cache_spec = spec.get("kvCacheSpec") or {}
    if not is_vllm:
        return {"cache.l1.enabled": False, "cache.l2.enabled": False}
    flat_fields: Flat = {
        "cache.l1.enabled": cache_spec.get("enableL1Cache", True),
        "cache.l2.enabled": cache_spec.get("enableL2Cache", False),
    }
    second = cache_spec.get("l2CacheSpec") or {}
    if second.get("l2CacheBackend"):
        backend = str(second["l2CacheBackend"]).lower()
        flat_fields["cache.l2.backend"] = backend
        if backend == "redis":
            flat_fields["cache.l2.url"] = second.get("l2CacheLocalUrl", "")
    return flat_fields


def _routing(spec: Mapping[str, Any], is_vllm: bool) -> Flat:
    routing_spec = spec.get("intelligentRoutingSpec") or {}
    enabled = bool(routing_spec.get("enabled", False)) and is_vllm
    routing: Flat = {
        "routing.enabled": enabled,
        "routing.strategy": routing_spec.get("routingStrategy", "prefixaware"),
    }
    scaling = routing_spec.get("autoScalingSpec")
    if scaling is not None:
        routing["router.replicas"] = max(1, scaling.get("minReplicaCount", 1))
        routing["router.max_replicas"] = scaling.get("maxReplicaCount", 5)
    return routing


def _placement(spec: Mapping[str, Any]) -> Flat:
    if spec.get("instanceTypes"):
        return {"placement.instance_types": list(spec["instanceTypes"])}
    if spec.get("instanceType"):
        return {"placement.instance_types": [spec["instanceType"]]}
    if spec.get("nodeAffinity"):
        return {"placement.node_affinity": spec["nodeAffinity"]}
    return {}


def _scaling(spec: Mapping[str, Any]) -> Flat:
    scaling_spec = spec.get("autoScalingSpec")
    if scaling_spec is None:
        return {}
    flat_fields: Flat = {"scaling.enabled": True}
    flat_fields |= {
        path: scaling_spec[name] for name, path, _ in SCALING_FIELDS if name in scaling_spec
    }
    region = ((spec.get("modelSourceConfig") or {}).get("s3Storage") or {}).get("region", "")
    flat_fields["scaling.triggers"] = triggers.triggers_of_manifest(scaling_spec, region)
    return flat_fields


def _monitoring(given: Mapping[str, Any]) -> Flat:
    return {
        "monitoring.enabled": given.get("enabled", True),
        "monitoring.interval_s": given.get("metricsScrapeIntervalSeconds", 15),
        "monitoring.path": (given.get("modelMetrics") or {}).get("path", "/metrics"),
    }


def _kubernetes(spec: Mapping[str, Any]) -> Flat:
    """Return native pod fields, without the model claim's volume, which the source mounts."""
    kubernetes_spec = spec.get("kubernetes") or {}
    taken = spec["worker"]["modelVolumeMount"]["name"] if claim_of(spec) else None
    kubernetes: Flat = {}
    volumes = [volume for volume in kubernetes_spec.get("volumes") or [] if volume["name"] != taken]
    if volumes:
        kubernetes["pod.volumes"] = volumes
    if kubernetes_spec.get("initContainers"):
        kubernetes["pod.init_containers"] = list(kubernetes_spec["initContainers"])
    if kubernetes_spec.get("serviceAccountName"):
        kubernetes["pod.service_account"] = kubernetes_spec["serviceAccountName"]
    if kubernetes_spec.get("schedulerName"):
        kubernetes["placement.scheduler"] = kubernetes_spec["schedulerName"]
    return kubernetes


def _pd(given: Mapping[str, Any] | None) -> Flat:
    if given is None:
        return {}
    return {
        "pd.enabled": True,
        "pd.prefill": dict(given["prefillSpec"]),
        "pd.decode": dict(given["decodingSpec"]),
        "pd.threshold": given.get("routingThreshold", 4096),
        "pd.topology": dict(given.get("topologySpec") or {}),
    }


def locate_in_object(error: Problem, manifest: Manifest) -> Problem:
    path = error.field
    if path in ("placement.cluster", ""):
        return error
    annotated = extensions.key_of(path) in manifest.annotations
    if annotated:
        return replace(error, field=extensions.place_of(path))
    is_shared = PLACES.get(path, "").split(".")[1:2] != ["worker"]
    place = PLACES.get(path) if manifest.kind == schemas.KIND or is_shared else None
    if place is not None:
        return replace(error, field=place)
    remedy = f"{error.remedy} The annotation {extensions.key_of(path)} sets it.".lstrip()
    return replace(error, field="spec", remedy=remedy)
