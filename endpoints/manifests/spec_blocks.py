"""Write endpoint fields into the `spec` of an InferenceEndpointConfig, block by block.

Each writer changes its own block and keeps unknown fields in it. `exporter` reads the result back
and adds annotations for differences, so that writers may be incomplete.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from endpoints.manifests import schemas, triggers
from endpoints.manifests.importer import DEADLINE_S, SCALING_FIELDS, SOURCE_BLOCKS
from endpoints.manifests.worker import GPU, MOUNT, cpu_text, memory_text
from endpoints.spec.endpoint_spec import DEFAULT_ROUTERS, EndpointSpec
from endpoints.spec.fields import BY_PATH

Flat = Mapping[str, Any]
Object = dict[str, Any]
WORKER_PORT = 8000
_VOLUME = "model-weights"
_TRIGGERS = (
    "cloudWatchTrigger",
    "cloudWatchTriggerList",
    "prometheusTrigger",
    "prometheusTriggerList",
)


def skeleton(spec: EndpointSpec, image: str) -> Object:
    return {
        "apiVersion": f"{schemas.GROUP}/v1",
        "kind": schemas.KIND,
        "metadata": {"name": spec.name},
        "spec": {
            "modelName": re.sub(r"[^A-Za-z0-9.-]+", "-", spec.model).strip("-.")[-63:] or "model",
            "modelSourceConfig": {
                "modelSourceType": "huggingface",
                "huggingFaceModel": {"modelId": _hub_name(spec)},
            },
            "worker": {
                "image": spec.pod.image or image or "vllm/vllm-openai:latest",
                "modelInvocationPort": {"containerPort": spec.pod.port or WORKER_PORT},
                "modelVolumeMount": {"name": _VOLUME},
                "resources": {},
            },
            "loadBalancer": {"healthCheckPath": "/health"},
        },
    }


def _hub_name(spec: EndpointSpec) -> str:
    for name in (spec.source.location, spec.model):
        if re.fullmatch(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+", name):
            return name
    return f"local/{spec.name}"


def set_value(place: Object, name: str, value: Any, default: Any = None) -> None:
    """Set the value; leave a missing field unset if the default equals the value."""
    if name not in place and value == default:
        return
    if value in ("", None, [], {}):
        place.pop(name, None)
    else:
        place[name] = value


def _basics(spec: Object, wanted: Flat) -> None:
    spec["modelName"] = wanted["model"]


def _counts(spec: Object, wanted: Flat) -> None:
    if "replicas" in spec or wanted["replicas"] != 1:
        spec["replicas"] = wanted["replicas"]
    set_value(spec, "maxDeployTimeInSeconds", wanted["rollout.deadline_s"], DEADLINE_S)


def _tags(spec: Object, wanted: Flat) -> None:
    set_value(spec, "tags", [{"name": k, "value": v} for k, v in wanted["tags"].items()], [])


def _source(spec: Object, wanted: Flat) -> None:
    kind, source = wanted["source.type"], spec["modelSourceConfig"]
    if kind == "s3":
        block = source.setdefault("s3Storage", {})
        block["bucketName"], block["region"] = wanted["source.bucket"], wanted["source.region"]
        _kind_of_source(source, "s3", "s3Storage")
    elif kind == "fsx":
        block = source.setdefault("fsxStorage", {})
        block["fileSystemId"] = wanted["source.file_system"]
        set_value(block, "dnsName", wanted["source.dns_name"])
        set_value(block, "mountName", wanted["source.mount_name"])
        _kind_of_source(source, "fsx", "fsxStorage")
    elif kind == "huggingface":
        block = source.setdefault("huggingFaceModel", {})
        block["modelId"] = wanted["source.location"] or wanted["model"]
        set_value(block, "commitSHA", wanted["source.revision"])
        secret = {"name": wanted["source.token_secret"], "key": wanted["source.token_key"]}
        set_value(block, "tokenSecretRef", secret if secret["name"] else {})
        _kind_of_source(source, "huggingface", "huggingFaceModel")
    elif kind == "pvc":
        _kind_of_source(source, "kubernetesVolume", "")
        _claim(spec, wanted["source.claim"])
    if kind != "huggingface":
        set_value(source, "modelLocation", wanted["source.location"])
    set_value(source, "prefetchEnabled", wanted["source.prefetch"], False)


def _kind_of_source(source: Object, kind: str, block: str) -> None:
    if source["modelSourceType"] != kind:
        for other in SOURCE_BLOCKS.values():
            if other != block:
                source.pop(other, None)
    source["modelSourceType"] = kind


def _claim(spec: Object, claim: str) -> None:
    name = spec["worker"]["modelVolumeMount"]["name"]
    place = spec.setdefault("kubernetes", {})
    others = [volume for volume in place.get("volumes") or [] if volume["name"] != name]
    place["volumes"] = [{"name": name, "persistentVolumeClaim": {"claimName": claim}}, *others]


def _cache(spec: Object, wanted: Flat) -> None:
    block = spec.setdefault("kvCacheSpec", {})
    set_value(block, "enableL1Cache", wanted["cache.l1.enabled"], True)
    set_value(block, "enableL2Cache", wanted["cache.l2.enabled"], False)
    if wanted["cache.l2.enabled"]:
        second = block.setdefault("l2CacheSpec", {})
        backend = wanted["cache.l2.backend"]
        if str(second.get("l2CacheBackend", "")).lower() != backend:
            second["l2CacheBackend"] = backend
        set_value(second, "l2CacheLocalUrl", wanted["cache.l2.url"] if backend == "redis" else "")
    _drop_empty(spec, "kvCacheSpec")


def _routing(spec: Object, wanted: Flat) -> None:
    block = spec.setdefault("intelligentRoutingSpec", {})
    set_value(block, "enabled", wanted["routing.enabled"], False)
    set_value(block, "routingStrategy", wanted["routing.strategy"], "prefixaware")
    kvaware = wanted["routing.enabled"] and wanted["routing.strategy"] == "kvaware"
    path = str(spec.get("invocationEndpoint", ""))
    if kvaware and not path.rstrip("/").endswith("completions"):
        spec["invocationEndpoint"] = "v1/chat/completions"
    if wanted["router.max_replicas"]:
        scaling = block.setdefault("autoScalingSpec", {})
        set_value(scaling, "minReplicaCount", wanted["router.replicas"] or DEFAULT_ROUTERS, 1)
        set_value(scaling, "maxReplicaCount", wanted["router.max_replicas"], 5)
    else:
        block.pop("autoScalingSpec", None)
    _drop_empty(spec, "intelligentRoutingSpec")


def _placement(spec: Object, wanted: Flat) -> None:
    kinds = wanted["placement.instance_types"]
    single = len(kinds) == 1 and kinds[0].startswith("ml.") and "instanceTypes" not in spec
    set_value(spec, "instanceType", kinds[0] if single else "")
    set_value(spec, "instanceTypes", [] if single else kinds)
    set_value(spec, "nodeAffinity", {} if kinds else wanted["placement.node_affinity"])


def _scaling(spec: Object, wanted: Flat) -> None:
    if not wanted["scaling.enabled"]:
        spec.pop("autoScalingSpec", None)
        return
    block = spec.setdefault("autoScalingSpec", {})
    for name, path, default in SCALING_FIELDS:
        set_value(block, name, wanted[path], default)
    manifest = triggers.manifest_of(wanted["scaling.triggers"])
    if manifest is not None:
        for name in _TRIGGERS:
            block.pop(name, None)
        block.update(manifest)


def _monitoring(spec: Object, wanted: Flat) -> None:
    block = spec.setdefault("metrics", {})
    set_value(block, "enabled", wanted["monitoring.enabled"], True)
    set_value(block, "metricsScrapeIntervalSeconds", wanted["monitoring.interval_s"], 15)
    model = block.setdefault("modelMetrics", {})
    set_value(model, "path", wanted["monitoring.path"], "/metrics")
    _drop_empty(block, "modelMetrics")
    _drop_empty(spec, "metrics")


def _kubernetes(spec: Object, wanted: Flat) -> None:
    block = spec.setdefault("kubernetes", {})
    own = spec["worker"]["modelVolumeMount"]["name"] if wanted["source.type"] == "pvc" else None
    volumes = [volume for volume in block.get("volumes") or [] if volume["name"] == own]
    set_value(block, "volumes", [*volumes, *wanted["pod.volumes"]], [])
    set_value(block, "initContainers", wanted["pod.init_containers"], [])
    set_value(block, "serviceAccountName", wanted["pod.service_account"], "")
    set_value(block, "schedulerName", wanted["placement.scheduler"], "")
    _drop_empty(spec, "kubernetes")


def _pd(spec: Object, wanted: Flat) -> None:
    if not wanted["pd.enabled"]:
        spec.pop("pdSpec", None)
        return
    block = spec.setdefault("pdSpec", {})
    block["prefillSpec"], block["decodingSpec"] = wanted["pd.prefill"], wanted["pd.decode"]
    set_value(block, "routingThreshold", wanted["pd.threshold"], 4096)
    set_value(block, "topologySpec", wanted["pd.topology"], {})


def _image(spec: Object, wanted: Flat) -> None:
    worker = spec["worker"]
    worker["image"] = wanted["pod.image"] or worker["image"]
    set_value(worker, "command", wanted["pod.command"], [])
    set_value(worker, "workingDir", wanted["pod.working_dir"], "")
    set_value(worker, "args", wanted["worker_args"], [])
    if wanted["pod.port"]:
        worker["modelInvocationPort"]["containerPort"] = wanted["pod.port"]
    set_value(worker["modelVolumeMount"], "mountPath", wanted["source.mount_path"] or MOUNT, MOUNT)
    probes = {f"{name}Probe": probe for name, probe in wanted["pod.probes"].items()}
    set_value(worker, "probes", probes, {})


def _variables(spec: Object, wanted: Flat) -> None:
    plain = [{"name": name, "value": value} for name, value in wanted["pod.env"].items()]
    set_value(spec["worker"], "environmentVariables", [*plain, *wanted["pod.env_from"]], [])


def _resources(spec: Object, wanted: Flat) -> None:
    """Write resources; a manifest's memory includes L1."""
    l1 = wanted["cache.l1.size_gib"] if wanted["cache.l1.enabled"] else 0
    further = wanted["pod.resources"]
    requests = {
        "cpu": cpu_text(wanted["resources.cpus"]),
        "memory": memory_text(wanted["resources.memory_gib"] + l1),
        **further.get("requests", {}),
    }
    limits = dict(further.get("limits", {}))
    if wanted["resources.gpus"]:
        requests[GPU] = limits[GPU] = str(wanted["resources.gpus"])
    block = spec["worker"]["resources"] = {"requests": requests}
    set_value(block, "limits", limits)
    set_value(block, "claims", further.get("claims"))


def _limits(spec: Object, wanted: Flat) -> None:
    block = spec["worker"].setdefault("requestLimits", {})
    set_value(block, "maxConcurrentRequests", wanted["limits.max_concurrent"] or None)
    if wanted["limits.max_queue"] < 0:
        block.pop("maxQueueSize", None)
    else:
        block["maxQueueSize"] = wanted["limits.max_queue"]
    set_value(block, "overflowStatusCode", wanted["limits.overflow_status"], 429)
    _drop_empty(spec["worker"], "requestLimits")


def _drop_empty(place: Object, name: str) -> None:
    if place.get(name) == {}:
        del place[name]


Writer = Callable[[Object, Flat], None]


def _paths(*names: str) -> frozenset[str]:
    return frozenset(
        path
        for path in BY_PATH
        for name in names
        if path == name or (name.endswith(".") and path.startswith(name))
    )


WRITERS: tuple[tuple[frozenset[str], Writer], ...] = (
    (_paths("model"), _basics),
    (_paths("replicas", "rollout.deadline_s"), _counts),
    (_paths("tags"), _tags),
    (_paths("pod.image", "pod.command", "pod.working_dir", "pod.port", "pod.probes"), _image),
    (_paths("source.mount_path", "worker_args"), _image),
    (_paths("source."), _source),
    (_paths("cache."), _cache),
    (_paths("routing.", "router."), _routing),
    (_paths("placement."), _placement),
    (_paths("scaling."), _scaling),
    (_paths("monitoring."), _monitoring),
    (_paths("pod.volumes", "pod.init_containers", "pod.service_account"), _kubernetes),
    (_paths("placement.scheduler"), _kubernetes),
    (_paths("pd."), _pd),
    (_paths("pod.env", "pod.env_from"), _variables),
    (_paths("resources.", "pod.resources", "cache.l1.size_gib"), _resources),
    (_paths("cache.l1.enabled"), _resources),
    (_paths("limits."), _limits),
)
