"""Team grants required by a spec for anything beyond a plain, restricted pod.

An allow-list: each field is checked or listed as free, and unknown content of a checked field needs
the grant `host`. A null is no default: it removes what is rendered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from console.core.errors import Problem
from console.core.grants import Grant
from console.provisioners.kubernetes.api.capabilities import GPU_DOMAINS
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.validators import flag_of, redact

_PLAIN_FLAGS = """
--aggregate-engine-logging --allowed-media-domains --async-scheduling --attention-backend
--chat-template-content-format --convert --cpu-offload-gb --cudagraph-capture-sizes
--default-chat-template-kwargs --disable-cascade-attn --disable-chunked-mm-input
--disable-custom-all-reduce --disable-fastapi-docs --disable-hybrid-kv-cache-manager
--disable-log-stats --disable-sliding-window --disable-uvicorn-access-log --dtype
--enable-auto-tool-choice --enable-chunked-prefill --enable-expert-parallel
--enable-force-include-usage --enable-log-requests --enable-lora --enable-per-request-metrics
--enable-request-id-headers --enable-server-load-tracking --enforce-eager
--exclude-tools-when-tool-choice-none --fully-sharded-loras --generation-config
--gpu-memory-utilization --kv-cache-dtype --kv-cache-memory-bytes --kv-cache-metrics
--kv-cache-metrics-sample --language-model-only --limit-mm-per-prompt --load-format
--logprobs-mode --long-prefill-token-threshold --lora-dtype --max-cpu-loras
--max-cudagraph-capture-size --max-log-len --max-logprobs --max-lora-rank --max-loras
--max-model-len --max-num-batched-tokens --max-num-seqs --mm-encoder-tp-mode
--mm-processor-cache-gb --mm-processor-cache-type --model-impl --no-async-scheduling
--no-enable-chunked-prefill --no-enforce-eager --num-gpu-blocks-override --optimization-level
--override-generation-config --performance-mode --pipeline-parallel-size --quantization
--reasoning-parser --response-role --return-tokens-as-token-ids --revision --runner
--safetensors-load-strategy --scheduling-policy --seed --show-hidden-metrics-for-version
--shutdown-timeout --skip-mm-profiling --sse-keep-alive-interval --stream-interval
--tensor-parallel-size --tokenizer-mode --tokenizer-revision --tool-call-parser
--uvicorn-log-level --video-pruning-rate --watermark
"""
PLAIN_FLAGS = frozenset(_PLAIN_FLAGS.split())
"""vLLM arguments whose value, without a slash, references no file, code or address."""

Found = Iterator[tuple[Grant, str]]


@dataclass(frozen=True, slots=True)
class Need:
    field: str
    grant: Grant
    what: str


def required_grants(spec: EndpointSpec, model_folder: Callable[[str], bool]) -> list[Need]:
    """`model_folder` returns whether a path is inside the installation's model folder."""
    flat = spec.flat()
    needs = [
        Need(path, grant, what)
        for path, judge in JUDGED.items()
        for grant, what in judge(flat[path])
    ]
    if not spec.on_cluster:
        needs += _of_machine(spec, model_folder)
    return list(dict.fromkeys(needs))


def grant_errors(spec: EndpointSpec, missing: Iterable[Need], team: str) -> list[Problem]:
    flat = spec.flat()
    whom = f"give team {team} that grant" if team else "make this change, or grant it to a team"
    return [
        Problem(
            need.field,
            redact(need.field, flat[need.field]),
            f"{need.what} needs the grant {need.grant}.",
            f"Remove it, or ask an admin of the console to {whom}.",
            "not_granted",
        )
        for need in missing
    ]


def _of_machine(spec: EndpointSpec, model_folder: Callable[[str], bool]) -> Iterator[Need]:
    """Yield the needs of local workers, which run as the console's user and read its files."""
    if spec.model.startswith("/") and not model_folder(spec.model):
        yield Need("model", Grant.MACHINE, "A model outside the installation's folder of models")
    if spec.simulated:
        return  # reads no file and runs no code
    for argument in spec.worker_args:
        flag = flag_of(argument)
        if flag and flag.partition(".")[0] not in PLAIN_FLAGS:
            yield Need("worker_args", Grant.MACHINE, f"The argument {flag}")
        elif "/" in argument or "\\" in argument:
            yield Need("worker_args", Grant.MACHINE, f"A path in the argument {flag or 'values'}")


def _source(value: str) -> Found:
    if value in ("s3", "fsx", "pvc"):
        yield Grant.STORAGE, f"The source {value}"


def _need_if_set(grant: Grant, what: str) -> Callable[[Any], Found]:
    def judge(value: Any) -> Found:
        if value:
            text = ", ".join(value) if isinstance(value, list) else value
            yield grant, f"{what} {text!r}"

    return judge


def _tags(value: Mapping[str, Any]) -> Found:
    for name in value:
        if "/" in name:  # keys read by controllers have a prefix
            yield Grant.ANNOTATIONS, f"The annotation {name!r}"


def _annotations(value: Mapping[str, Any]) -> Found:
    for name in value:
        yield Grant.ANNOTATIONS, f"The annotation {name!r}"


def _tolerations(value: list[Any]) -> Found:
    for toleration in value:
        key = toleration.get("key")
        if not isinstance(key, str) or key.partition("/")[0] not in GPU_DOMAINS:
            yield Grant.SCHEDULING, f"The toleration of {key or 'every taint'!r}"


def _triggers(value: list[Any]) -> Found:
    for trigger in value:
        if trigger.get("authenticationRef"):
            yield Grant.SECRETS, "A trigger with authenticationRef"
        allowed = {
            "type",
            "name",
            "metadata",
            "metricType",
            "useCachedMetrics",
            "authenticationRef",
        }
        yield from _unknown(trigger, allowed, "A trigger")


# ---- pods, in Kubernetes form


def _variables(value: Any, where: str = "A variable") -> Found:
    for variable in _objects(value):
        if variable is None:
            yield Grant.HOST, where
            continue
        yield from _unknown(variable, {"name", "value", "valueFrom"}, where)
        if "valueFrom" not in variable:
            continue
        source = variable["valueFrom"]
        for key in source if isinstance(source, Mapping) else ("valueFrom",):
            if key in ("secretKeyRef", "configMapKeyRef"):
                yield Grant.SECRETS, f"{where} from {_reference(source[key], key)}"
            elif key not in ("fieldRef", "resourceFieldRef"):
                yield Grant.HOST, f"{where} with {key}"


def _volumes(value: Any) -> Found:
    for volume in value:
        name = volume.get("name")
        for kind in volume:
            if kind in ("name", "emptyDir", "downwardAPI"):
                continue
            if kind == "projected":
                yield from _projected(volume[kind], name)
            else:
                yield _VOLUMES.get(kind, Grant.HOST), f"The volume {name!r} ({kind})"


_VOLUMES = {
    "secret": Grant.SECRETS,
    "configMap": Grant.SECRETS,
    "persistentVolumeClaim": Grant.STORAGE,
    "ephemeral": Grant.STORAGE,
}
_PROJECTED = {
    "secret": Grant.SECRETS,
    "configMap": Grant.SECRETS,
    "serviceAccountToken": Grant.SERVICE_ACCOUNTS,
}


def _projected(value: Any, name: Any) -> Found:
    sources = value if isinstance(value, Mapping) else {"projected": value}
    yield from _unknown(sources, {"sources", "defaultMode"}, f"The volume {name!r}")
    for source in _objects(sources.get("sources")):
        for kind in source if source is not None else ("projected",):
            if kind != "downwardAPI":
                yield _PROJECTED.get(kind, Grant.HOST), f"The volume {name!r} ({kind})"


_CONTAINER = frozenset(
    {"name", "image", "imagePullPolicy", "command", "args", "workingDir", "restartPolicy"}
    | {"terminationMessagePath", "terminationMessagePolicy"}
)


def _containers(value: list[Any]) -> Found:
    for container in value:
        where = f"The init container {container.get('name')!r}"
        for key, content in container.items():
            if key in _CONTAINER:
                continue
            if key not in _OF_CONTAINER:
                yield Grant.HOST, f"{where} with {key}"
                continue
            yield from ((grant, f"{where}: {what}") for grant, what in _OF_CONTAINER[key](content))


def _sources(value: Any) -> Found:
    if value != []:
        yield Grant.SECRETS, "variables from Secrets or ConfigMaps (envFrom)"


def _each(known: Collection[str], what: str) -> Callable[[Any], Found]:
    def judge(value: Any) -> Found:
        for entry in _objects(value):
            yield from _unknown(entry, known, what)

    return judge


def _security(value: Any) -> Found:
    """Allow only settings that remove privileges."""
    if not isinstance(value, Mapping):
        yield Grant.HOST, "securityContext"
        return
    for key, setting in value.items():
        harmless = {
            "privileged": setting is False,
            "allowPrivilegeEscalation": setting is False,
            "runAsNonRoot": setting is True,
            "readOnlyRootFilesystem": isinstance(setting, bool),
            "runAsUser": type(setting) is int and setting > 0,
            "runAsGroup": type(setting) is int and setting > 0,
            "seccompProfile": setting == {"type": "RuntimeDefault"},
            "capabilities": setting in ({"drop": ["ALL"]}, {}),
        }
        if not harmless.get(key, False):
            yield Grant.HOST, f"securityContext.{key}"


_TIMES = frozenset(
    {"initialDelaySeconds", "periodSeconds", "timeoutSeconds", "failureThreshold"}
    | {"successThreshold", "terminationGracePeriodSeconds"}
)
_HANDLERS: Mapping[str, Collection[str]] = {
    "exec": {"command"},
    "httpGet": {"path", "port", "scheme", "httpHeaders"},
    "tcpSocket": {"port"},
    "grpc": {"port", "service"},
    "sleep": {"seconds"},
}


def _probe(value: Any, what: str = "a probe") -> Found:
    """Allow no other host: the kubelet sends probes from the node."""
    handlers = value if isinstance(value, Mapping) else {"": value}
    for key, handler in handlers.items():
        if key in _HANDLERS:
            yield from _unknown(handler, _HANDLERS[key], f"{what} ({key})")
        elif key not in _TIMES:
            yield Grant.HOST, f"{what} with {key}"


def _probes(value: Any) -> Found:
    probes = value if isinstance(value, Mapping) else {"": value}
    for name, probe in probes.items():
        yield from _probe(probe, f"The probe {name!r}")


_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_RESOURCE_DOMAINS = frozenset({*GPU_DOMAINS, "vpc.amazonaws.com", "aws.amazon.com"})


def _resources(value: Any) -> Found:
    """Allow no extended resources of other domains, which may be any device of the node."""
    if not isinstance(value, Mapping):
        yield Grant.HOST, "resources"
        return
    yield from _unknown(value, {"requests", "limits"}, "resources")
    for part in ("requests", "limits"):
        amounts = value.get(part, {})
        for name in amounts if isinstance(amounts, Mapping) else ("",):
            domain = str(name).partition("/")[0]
            if name not in _RESOURCES and domain not in _RESOURCE_DOMAINS:
                yield Grant.HOST, f"The resource {name!r}"


def _objects(value: Any) -> list[Mapping[str, Any] | None]:
    """Return the list's objects; None for each other value."""
    if not isinstance(value, list):
        return [] if value is None else [None]
    return [entry if isinstance(entry, Mapping) else None for entry in value]


def _unknown(given: Any, known: Collection[str], what: str) -> Found:
    if not isinstance(given, Mapping):
        yield Grant.HOST, what
        return
    for key in given:
        if key not in known:
            yield Grant.HOST, f"{what} with {key}"


def _reference(value: Any, kind: str) -> str:
    name = value.get("name") if isinstance(value, Mapping) else None
    return f"{kind} {name!r}" if isinstance(name, str) else kind


_MOUNT = frozenset({"name", "mountPath", "subPath", "subPathExpr", "readOnly"})
_OF_CONTAINER: Mapping[str, Callable[[Any], Found]] = {
    "env": _variables,
    "envFrom": _sources,
    "resources": _resources,
    "volumeMounts": _each(_MOUNT, "a mount"),
    "ports": _each({"name", "containerPort", "protocol"}, "a port"),
    "securityContext": _security,
    "livenessProbe": _probe,
    "readinessProbe": _probe,
    "startupProbe": _probe,
    "lifecycle": _probes,
}
JUDGED: Mapping[str, Callable[[Any], Found]] = {
    "placement.tolerations": _tolerations,
    "placement.priority_class": _need_if_set(Grant.SCHEDULING, "The priority class"),
    "placement.scheduler": _need_if_set(Grant.SCHEDULING, "The scheduler"),
    "source.type": _source,
    "source.token_secret": _need_if_set(Grant.SECRETS, "The Secret"),
    "pod.env_from": _variables,
    "pod.probes": _probes,
    "pod.resources": _resources,
    "pod.volumes": _volumes,
    "pod.init_containers": _containers,
    "pod.service_account": _need_if_set(Grant.SERVICE_ACCOUNTS, "The service account"),
    "pod.pull_secrets": _need_if_set(Grant.SECRETS, "The Secret"),
    "scaling.triggers": _triggers,
    "exposure.annotations": _annotations,
    "exposure.tls_secret": _need_if_set(Grant.SECRETS, "The Secret"),
    "tags": _tags,
}
OF_MACHINE = frozenset({"model", "worker_args"})
"""Checked for local workers only; in a pod they reach only the pod's content."""
