"""Rules of an InferenceEndpointConfig across fields, beyond the schema.

All errors are returned at once with their paths. Covers what the published webhook and CLI reject,
and what has no meaning for an endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from console.core.errors import Problem
from endpoints.manifests import extensions, jumpstart, schemas
from endpoints.manifests.importer import SOURCE_BLOCKS, claim_of
from endpoints.manifests.objects import Manifest
from endpoints.manifests.structural_schema import schema_error
from endpoints.manifests.worker import GPU
from endpoints.spec.validators import redis_url_problem

Spec = Mapping[str, Any]
Found = Iterator[Problem]
BACKENDS = ("redis", "tieredstorage")
_SOURCE = "spec.modelSourceConfig"


def errors(manifest: Manifest) -> list[Problem]:
    problems = list(extensions.problems(manifest.annotations))
    if manifest.kind != schemas.KIND:
        shared = [error for rule in (_cache, _routing, _scaling) for error in rule(manifest.spec)]
        return [*problems, *jumpstart.errors(manifest), *shared]
    for rule in _RULES:
        problems.extend(rule(manifest.spec))
    annotated = frozenset(extensions.fields(manifest.annotations))
    return problems + list(_source_of(manifest.spec, annotated))


def _placement(spec: Spec) -> Found:
    names = [name for name in ("instanceType", "instanceTypes", "nodeAffinity") if spec.get(name)]
    for name in names[1:]:
        message = f"{name} excludes {names[0]}."
        remedy = "Keep one of instanceType, instanceTypes and nodeAffinity."
        yield schema_error(f"spec.{name}", None, message, remedy, "exclusive")


def _source_of(spec: Spec, annotated: frozenset[str]) -> Found:
    source = spec["modelSourceConfig"]
    kind = source["modelSourceType"]
    block = SOURCE_BLOCKS.get(kind)
    if "source.type" in annotated:
        return
    if block and not source.get(block):
        path, message = f"{_SOURCE}.{block}", f"The source {kind} needs it."
        yield schema_error(path, None, message, "Add it.", "required")
    hub = source.get("huggingFaceModel") or {}
    if kind == "huggingface" and "tokenSecretRef" in hub and not hub["tokenSecretRef"].get("name"):
        path = f"{_SOURCE}.huggingFaceModel.tokenSecretRef.name"
        yield schema_error(path, None, "The Secret needs a name.", "Add it.", "required")
    if kind == "kubernetesVolume" and not claim_of(spec) and "source.claim" not in annotated:
        name = spec["worker"]["modelVolumeMount"]["name"]
        message = f"No volume called {name!r} (worker.modelVolumeMount.name) has a claim."
        remedy = "Add it with persistentVolumeClaim.claimName."
        yield schema_error("spec.kubernetes.volumes", None, message, remedy, "required")


def _cache(spec: Spec) -> Found:
    cache_spec = spec.get("kvCacheSpec") or {}
    second = cache_spec.get("l2CacheSpec") or {}
    backend = second.get("l2CacheBackend")
    path = "spec.kvCacheSpec.l2CacheSpec"
    is_known = backend is not None and str(backend).lower() in BACKENDS
    if backend is not None and not is_known:
        remedy = f"Choose one of: {', '.join(BACKENDS)}."
        message = "Unknown backend."
        yield schema_error(f"{path}.l2CacheBackend", backend, message, remedy, "invalid_choice")
    if not cache_spec.get("enableL2Cache", False):
        return
    if not cache_spec.get("enableL1Cache", True):
        message = "L2 is filled through L1, and L1 is off."
        remedy = "Turn L1 on, or turn L2 off."
        yield schema_error("spec.kvCacheSpec.enableL1Cache", False, message, remedy, "l2_needs_l1")
    if backend is None:
        remedy = f"Choose one of: {', '.join(BACKENDS)}."
        yield schema_error(
            f"{path}.l2CacheBackend", None, "L2 needs a backend.", remedy, "required"
        )
    elif str(backend).lower() == "redis":
        yield from _redis(second.get("l2CacheLocalUrl", ""), f"{path}.l2CacheLocalUrl")


def _redis(url: str, path: str) -> Found:
    if not url:
        remedy = "Write redis://HOST:PORT."
        yield schema_error(path, None, "The backend redis needs an address.", remedy, "required")
        return
    problem = redis_url_problem(url)
    if problem:
        yield schema_error(path, None, *problem)


def _routing(spec: Spec) -> Found:
    routing_spec = spec.get("intelligentRoutingSpec") or {}
    default = "invocations" if "worker" in spec else "v1/chat/completions"
    path = spec.get("invocationEndpoint", default)
    kvaware = (
        routing_spec.get("enabled", False) and routing_spec.get("routingStrategy") == "kvaware"
    )
    if kvaware and not path.rstrip("/").endswith("completions"):
        yield schema_error(
            "spec.invocationEndpoint",
            path,
            "kvaware requires a completions path.",
            "Write v1/chat/completions or v1/completions, or choose prefixaware.",
            "kvaware_needs_completions",
        )
    if "autoScalingSpec" in routing_spec:
        yield from _bounds(
            routing_spec["autoScalingSpec"], "spec.intelligentRoutingSpec.autoScalingSpec"
        )


def _scaling(spec: Spec) -> Found:
    scaling_spec = spec.get("autoScalingSpec")
    if scaling_spec is None:
        return
    path = "spec.autoScalingSpec"
    yield from _bounds(scaling_spec, path)
    for name, needed in (
        ("cloudWatchTrigger", ("metricName", "namespace", "targetValue")),
        ("prometheusTrigger", ("serverAddress", "query", "targetValue")),
    ):
        for place, item in _triggers(scaling_spec, name, path):
            for field in needed:
                if item.get(field) in (None, ""):
                    message = "The trigger needs it."
                    yield schema_error(f"{place}.{field}", None, message, "Add it.", "required")


def _triggers(given: Spec, name: str, path: str) -> list[tuple[str, Spec]]:
    many = given.get(f"{name}List")
    if many:
        return [(f"{path}.{name}List[{index}]", item) for index, item in enumerate(many)]
    return [(f"{path}.{name}", given[name])] if given.get(name) else []


def _bounds(given: Spec, path: str) -> Found:
    least, most = given.get("minReplicaCount", 1), given.get("maxReplicaCount", 5)
    if most < max(least, 1):
        message = f"The maximum is below the minimum ({max(least, 1)})."
        remedy = "Raise it, or lower minReplicaCount."
        yield schema_error(f"{path}.maxReplicaCount", most, message, remedy, "out_of_range")


def _resources(spec: Spec) -> Found:
    yield from _equal_gpus(spec["worker"]["resources"], "spec.worker.resources")
    roles = spec.get("pdSpec") or {}
    shared = _gpus(spec["worker"]["resources"])
    for name in ("prefillSpec", "decodingSpec"):
        if name not in roles:
            continue
        resources = roles[name].get("resources") or {}
        path = f"spec.pdSpec.{name}.resources"
        yield from _equal_gpus(resources, path)
        if not _gpus(resources) and not shared:
            remedy = f"Add limits with {GPU}."
            yield schema_error(path, None, "This role requests no GPU.", remedy, "required")


def _equal_gpus(given: Spec, path: str) -> Found:
    requests, limits = given.get("requests") or {}, given.get("limits") or {}
    for name in sorted(set(requests) | set(limits)):
        if "/" not in name:
            continue
        requested, limit = requests.get(name), limits.get(name)
        if limit is None:
            message = f"{name} is requested without a limit."
            remedy = "Give the same under limits."
            yield schema_error(f"{path}.limits[{name}]", None, message, remedy, "required")
        elif requested is not None and str(requested) != str(limit):
            message = f"The request ({requested}) and the limit ({limit}) of {name} differ."
            remedy = "Use the same value for both."
            yield schema_error(f"{path}.limits[{name}]", limit, message, remedy, "invalid")


def _gpus(given: Spec) -> bool:
    return any("/" in name for name in (given.get("limits") or {}))


def _certificates(spec: Spec) -> Found:
    custom = (spec.get("tlsConfig") or {}).get("customCertificateConfig")
    if spec.get("dnsConfig") and not custom:
        message = "A DNS record requires a custom certificate."
        remedy = "Add tlsConfig.customCertificateConfig, or remove dnsConfig."
        yield schema_error("spec.dnsConfig", None, message, remedy, "required")


def _tags(spec: Spec) -> Found:
    keys: set[str] = set()
    for index, tag in enumerate(spec.get("tags") or []):
        if tag["name"] in keys:
            path, message = f"spec.tags[{index}]", f"{tag['name']} is given twice."
            yield schema_error(path, None, message, "Keep one of them.", "duplicate")
        keys.add(tag["name"])


def _deadline(spec: Spec) -> Found:
    deadline_s = spec.get("maxDeployTimeInSeconds", 3600)
    if deadline_s < 30:
        remedy = "Give 30 or more."
        path, message = "spec.maxDeployTimeInSeconds", "The delay is too short."
        yield schema_error(path, deadline_s, message, remedy, "out_of_range")


_RULES: tuple[Callable[[Spec], Found], ...] = (
    _placement,
    _cache,
    _routing,
    _scaling,
    _resources,
    _certificates,
    _tags,
    _deadline,
)
