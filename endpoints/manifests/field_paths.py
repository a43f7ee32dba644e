"""Map endpoint fields to paths in a manifest, for error messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from endpoints.manifests import schemas
from endpoints.manifests.extensions import key_of, place_of
from endpoints.manifests.objects import Manifest
from endpoints.spec.endpoint_spec import FieldError

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
    "cache.l2.url": f"{_CACHE}.l2CacheSpec.l2CacheLocalUrl",
    "routing.enabled": f"{_ROUTING}.enabled",
    "routing.strategy": f"{_ROUTING}.routingStrategy",
    "router.replicas": f"{_ROUTING}.autoScalingSpec.minReplicaCount",
    "router.max_replicas": f"{_ROUTING}.autoScalingSpec.maxReplicaCount",
    "scaling.enabled": _SCALING,
    "scaling.triggers": _SCALING,
    "scaling.min": f"{_SCALING}.minReplicaCount",
    "scaling.max": f"{_SCALING}.maxReplicaCount",
    "scaling.polling_s": f"{_SCALING}.pollingInterval",
    "scaling.cooldown_s": f"{_SCALING}.cooldownPeriod",
    "scaling.initial_cooldown_s": f"{_SCALING}.initialCooldownPeriod",
    "scaling.up_stabilization_s": f"{_SCALING}.scaleUpStabilizationTime",
    "scaling.down_stabilization_s": f"{_SCALING}.scaleDownStabilizationTime",
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
_NOT_PLACED = ("placement.cluster", "")


def locate_in_object(error: FieldError, manifest: Manifest) -> FieldError:
    path = error.field
    if path in _NOT_PLACED:
        return error
    said = key_of(path) in manifest.annotations
    place = PLACES.get(path) if manifest.kind == schemas.KIND and not said else None
    return replace(error, field=place or place_of(path))
