"""Advisories on accepted manifests: fields without effect, pitfalls, AWS-only fields.

Every field without effect is listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from endpoints.manifests import extensions, jumpstart, schemas
from endpoints.manifests.importer import SOURCE_BLOCKS, flat, model_names, name_of
from endpoints.manifests.objects import Manifest, Note, NoteMark
from endpoints.manifests.worker import read_arguments, serves_vllm, split_command
from endpoints.spec.fields import BY_PATH

Spec = Mapping[str, Any]
Found = Iterator[Note]
_AWS = "amazonaws.com"
_NOT_IN_OBJECTS = ("name", "engine", "cache.l1.size_gib")
_ONLY_AWS = (
    ("endpointName", "No SageMaker endpoint is created; clients use the router's address."),
    ("dataCapture", "No data is captured to S3."),
    ("dnsConfig", "No Route 53 record is created."),
    ("tlsConfig", "Certificates of ACM and S3 are not used; see exposure.tls and exposure.issuer."),
    ("modelVersion", "Informational; has no effect."),
)


def notes(manifest: Manifest) -> list[Note]:
    fields = list(_overridden_fields(manifest))
    name = name_of(manifest)
    if name not in (manifest.name, manifest.annotations.get(extensions.key_of("name"))):
        text = f"The endpoint is called {name}: names have up to 40 letters, digits and dashes."
        fields.append(
            Note("metadata.name", "renamed", text, "Set another with emberline.dev/name.")
        )
    if manifest.kind != schemas.KIND:
        fields += [*_cache(manifest.spec), *_scaling(manifest.spec)]
        return [*fields, *jumpstart.notes(manifest), *_only_aws(manifest.spec)]
    for rule in _RULES:
        fields.extend(rule(manifest.spec))
    fields.extend(_server(manifest.spec, manifest.own_image))
    return fields + list(_only_aws(manifest.spec))


def _overridden_fields(manifest: Manifest) -> Found:
    """Compare with the object's own values. A default in an annotation is no statement: exports
    write it where the schema requires a value.
    """
    bare = flat(replace(manifest, annotations={}))
    for path, value in extensions.fields(manifest.annotations).items():
        if path in _NOT_IN_OBJECTS or value == BY_PATH[path].default:
            continue
        if path in bare and bare[path] != value:
            place = extensions.place_of(path)
            yield Note(place, "annotation_wins", f"It overrides the object's {path}.")


def _placement(spec: Spec) -> Found:
    if not any(spec.get(name) for name in ("instanceType", "instanceTypes", "nodeAffinity")):
        message = (
            "Any node with the requested resources can be used; the reference requires one of "
            "instanceType, instanceTypes and nodeAffinity."
        )
        yield Note("spec.instanceType", "no_placement", message)
    if any(not kind.startswith("ml.") for kind in spec.get("instanceTypes") or []):
        message = "In the reference, instance type names begin with ml."
        yield Note("spec.instanceTypes", "not_portable", message)


def _replicas(spec: Spec) -> Found:
    if "InitialReplicaCount" in spec:
        message = "This field is deprecated and has no effect."
        yield Note("spec.InitialReplicaCount", "dead_field", message, "Use spec.replicas.")


def _cache(spec: Spec) -> Found:
    cache_spec = spec.get("kvCacheSpec") or {}
    if cache_spec.get("cacheConfigFile"):
        yield Note(
            "spec.kvCacheSpec.cacheConfigFile",
            "not_read",
            "In the reference, this file overrides all other cache fields. Here it is stored but "
            "not read; the fields apply.",
            "Set its values with annotations, such as emberline.dev/cache.l1.size_gib.",
        )
    second = cache_spec.get("l2CacheSpec") or {}
    if second and not cache_spec.get("enableL2Cache", False):
        message = "L2 is off, so this has no effect."
        yield Note("spec.kvCacheSpec.l2CacheSpec", "unused", message, "Set enableL2Cache: true.")
    if str(second.get("l2CacheBackend", "")).lower() == "tieredstorage" and second.get(
        "l2CacheLocalUrl"
    ):
        path = "spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl"
        yield Note(path, "unused", "The URL applies to redis only.", "Remove it.")


def _server(spec: Spec, own_image: str) -> Found:
    worker = spec["worker"]
    if serves_vllm(worker, own_image):
        if (spec.get("loadBalancer") or {}).get("healthCheckPath", "/ping") == "/ping":
            yield Note(
                "spec.loadBalancer.healthCheckPath",
                "ping_on_vllm",
                "/ping is the default, and vLLM's own health is at /health. Emberline checks the "
                "router and the workers, not this path.",
                "Write /health.",
            )
        return
    is_l1_on = (spec.get("kvCacheSpec") or {}).get("enableL1Cache", True)
    routed = (spec.get("intelligentRoutingSpec") or {}).get("enabled", False)
    yield Note(
        "spec.worker.image",
        "not_vllm",
        "The image does not look like vLLM, which alone has a cache to keep"
        + (": cache and routing stay off." if is_l1_on or routed else "."),
        "If it is vLLM: annotate emberline.dev/cache.l1.enabled: 'true'.",
    )


def _metrics(spec: Spec) -> Found:
    worker, metrics = spec["worker"], spec.get("metrics") or {}
    port = worker["modelInvocationPort"]["containerPort"]
    port_value = (metrics.get("modelMetrics") or {}).get("port")
    if metrics.get("enabled", True) and port_value is not None and port_value != port:
        yield Note(
            "spec.metrics.modelMetrics.port",
            "port_mismatch",
            f"Metrics are asked for at {port_value}, and the worker listens at {port}: in the "
            "reference its dashboards stay empty. Emberline scrapes the worker's own port.",
            f"Write {port}.",
        )
    if worker.get("requestLimits") and not metrics.get("enabled", True):
        message = "In the reference, limits require metrics; here they always apply."
        yield Note("spec.worker.requestLimits", "limits_need_metrics", message)


def _arguments(spec: Spec) -> Found:
    worker = spec["worker"]
    mount = worker["modelVolumeMount"].get("mountPath", "/opt/ml/model")
    port = worker["modelInvocationPort"]["containerPort"]
    _, words = split_command(worker)
    arguments = read_arguments(words, mount, port, model_names(spec))
    if arguments.dropped:
        message = f"{', '.join(arguments.dropped)}: other fields set the value; it is passed once."
        yield Note("spec.worker.args", "repeated", message)


def _scaling(spec: Spec) -> Found:
    for path in ("autoScalingSpec", "intelligentRoutingSpec.autoScalingSpec"):
        section: Any = spec
        for part in path.split("."):
            section = (section or {}).get(part)
        if not section:
            continue
        for name in ("cloudWatchTrigger", "prometheusTrigger"):
            if section.get(name) and section.get(f"{name}List"):
                message = f"{name}List wins over it."
                yield Note(f"spec.{path}.{name}", "unused", message, "Remove it.")
        if path != "autoScalingSpec":
            message = "The router is scaled within these limits by its own load, not by triggers."
            yield Note(f"spec.{path}", "router_scaling", message)
    yield from _prometheus(spec.get("autoScalingSpec") or {})


def _prometheus(given: Spec) -> Found:
    many = [given.get("prometheusTrigger"), *(given.get("prometheusTriggerList") or [])]
    for item in filter(None, many):
        if item.get("serverAddress") and _AWS not in item["serverAddress"]:
            message = "The reference accepts only Amazon Managed Service for Prometheus URLs."
            yield Note("spec.autoScalingSpec.prometheusTrigger", "not_portable", message)


def _sources(spec: Spec) -> Found:
    source = spec["modelSourceConfig"]
    for kind, block in SOURCE_BLOCKS.items():
        if source.get(block) and source["modelSourceType"] != kind:
            path = f"spec.modelSourceConfig.{block}"
            yield Note(path, "unused", f"The source is {source['modelSourceType']}.", "Remove it.")
    if source["modelSourceType"] == "huggingface" and source.get("modelLocation"):
        path = "spec.modelSourceConfig.modelLocation"
        yield Note(path, "unused", "huggingFaceModel.modelId says it.", "Remove it.")


def _secrets(spec: Spec) -> Found:
    for index, item in enumerate(spec["worker"].get("environmentVariables") or []):
        if item.get("value") and _sounds_secret(item["name"]):
            yield Note(
                f"spec.worker.environmentVariables[{index}]",
                "secret_in_clear",
                f"{item['name']} looks like a secret, and its value is visible to everyone who "
                "can read the object.",
                "Use valueFrom.secretKeyRef.",
            )


def _sounds_secret(name: str) -> bool:
    words = name.upper().split("_")
    return any(word in ("TOKEN", "PASSWORD", "SECRET", "APIKEY") for word in words) or (
        "KEY" in words and "API" in words
    )


def _only_aws(spec: Spec) -> Found:
    for name, message in _ONLY_AWS:
        if spec.get(name):
            yield Note(f"spec.{name}", "only_aws", message, "", NoteMark.KEPT)
    if (spec.get("loadBalancer") or {}).get("routingAlgorithm"):
        path = "spec.loadBalancer.routingAlgorithm"
        yield Note(path, "only_aws", "Here the router distributes requests.", "", NoteMark.KEPT)


_RULES: tuple[Callable[[Spec], Found], ...] = (
    _placement,
    _replicas,
    _cache,
    _metrics,
    _arguments,
    _scaling,
    _sources,
    _secrets,
)
