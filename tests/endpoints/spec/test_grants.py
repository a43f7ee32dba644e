"""Which grants a spec needs: each field is judged or free, and unknown keys are never free."""

from __future__ import annotations

from typing import Any

import pytest

from console.core.grants import Grant
from endpoints.spec.endpoint_spec import merge, parse
from endpoints.spec.fields import FIELDS
from endpoints.spec.grants import JUDGED, OF_MACHINE, required_grants

BASE = {"name": "demo", "model": "org/model", "placement": {"cluster": "east"}}
# Numbers and choices of our own, names for people, and what stays within the endpoint's own pods
# (image, command, plain variables). L2 files are confined by `spec_rules.l2_files`; `manifest` and
# the sections of prefill and decode are kept and never rendered.
FREE_SECTIONS = ("cache", "routing", "resources", "rollout", "router", "limits", "monitoring", "pd")
FREE = {
    *("name", "engine", "aliases", "replicas", "media_domains", "manifest"),
    *(f"placement.{name}" for name in ("cluster", "namespace", "instance_types")),
    *("placement.node_selector", "placement.node_affinity"),
    *(f"source.{name}" for name in ("location", "prefetch", "revision", "token_key", "bucket")),
    *(f"source.{name}" for name in ("region", "file_system", "dns_name", "mount_name", "claim")),
    *("source.mount_path", "source.endpoint", "source.weights_version"),
    *(f"pod.{name}" for name in ("image", "command", "working_dir", "env", "port")),
    *(f"scaling.{name}" for name in ("enabled", "min", "max", "polling_s", "cooldown_s")),
    *(f"scaling.{name}_s" for name in ("initial_cooldown", "up_stabilization")),
    "scaling.down_stabilization_s",
    *(f"exposure.{name}" for name in ("kind", "host", "class_name", "gateway", "tls", "issuer")),
}


def grants(patch: dict[str, Any], base: dict[str, Any] = BASE) -> set[Grant]:
    return {one.grant for one in required_grants(parse(merge(base, patch)), lambda _path: False)}


def test_every_field_is_judged_or_declared_free() -> None:
    """Each new field is assigned to one of the two."""
    paths = {field.path for field in FIELDS}
    free = {path for path in paths if path.partition(".")[0] in FREE_SECTIONS} | FREE
    assert set(JUDGED) | OF_MACHINE | free == paths
    assert not (set(JUDGED) | OF_MACHINE) & free


def volume(**source: Any) -> dict[str, Any]:
    return {"pod": {"volumes": [{"name": "v", **source}]}}


def init(**more: Any) -> dict[str, Any]:
    return {"pod": {"init_containers": [{"name": "i", "image": "busybox", **more}]}}


def env(**source: Any) -> dict[str, Any]:
    return {"pod": {"env_from": [{"name": "X", "valueFrom": source}]}}


REACHES = [
    (volume(hostPath={"path": "/"}), "host"),
    (volume(nfs={"server": "10.0.0.1", "path": "/"}), "host"),
    (volume(csi={"driver": "secrets-store.csi.k8s.io"}), "host"),
    (volume(image={"reference": "x"}), "host"),
    (volume(somethingNew={}), "host"),
    (volume(secret={"secretName": "console"}), "secrets"),
    (volume(configMap={"name": "x"}), "secrets"),
    (volume(persistentVolumeClaim={"claimName": "database"}), "storage"),
    (volume(ephemeral={}), "storage"),
    (volume(projected={"sources": [{"secret": {"name": "x"}}]}), "secrets"),
    (volume(projected={"sources": [{"configMap": {"name": "x"}}]}), "secrets"),
    (volume(projected={"sources": [{"serviceAccountToken": {}}]}), "service-accounts"),
    (volume(projected={"sources": [{"clusterTrustBundle": {}}]}), "host"),
    (volume(projected={"sources": {"secret": {}}}), "host"),
    (volume(projected=None), "host"),
    (volume(emptyDir={}, hostPath={"path": "/"}), "host"),
    (init(securityContext={"privileged": True}), "host"),
    (init(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}), "host"),
    (init(securityContext={"capabilities": {"drop": []}}), "host"),
    (init(securityContext={"capabilities": None}), "host"),
    (init(securityContext={"allowPrivilegeEscalation": None}), "host"),
    (init(securityContext={"runAsUser": 0}), "host"),
    (init(securityContext={"runAsUser": False}), "host"),
    (init(securityContext={"runAsNonRoot": False}), "host"),
    (init(securityContext={"procMount": "Unmasked"}), "host"),
    (init(securityContext={"seccompProfile": {"type": "Unconfined"}}), "host"),
    (init(securityContext={"appArmorProfile": {"type": "Unconfined"}}), "host"),
    (init(securityContext={"seLinuxOptions": {"type": "spc_t"}}), "host"),
    (init(securityContext=None), "host"),
    (init(ports=[{"containerPort": 1, "hostPort": 1}]), "host"),
    (init(volumeMounts=[{"name": "v", "mountPath": "/v", "mountPropagation": "x"}]), "host"),
    (init(volumeMounts="v"), "host"),
    (init(volumeDevices=[{"name": "v", "devicePath": "/dev/x"}]), "host"),
    (init(resources={"limits": {"smarter-devices/fuse": 1}}), "host"),
    (init(env=[{"name": "X", "valueFrom": {"secretKeyRef": {"name": "x"}}}]), "secrets"),
    (init(envFrom=[{"secretRef": {"name": "x"}}]), "secrets"),
    (init(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}), "host"),
    (init(lifecycle={"postStart": {"tcpSocket": {"host": "10.0.0.1", "port": 1}}}), "host"),
    (init(somethingNew=1), "host"),
    (env(secretKeyRef={"name": "x", "key": "y"}), "secrets"),
    (env(configMapKeyRef={"name": "x", "key": "y"}), "secrets"),
    (env(fileKeyRef={"path": "x"}), "host"),
    ({"pod": {"env_from": [{"name": "X", "valueFrom": None}]}}, "host"),
    ({"pod": {"env_from": [{"name": "X", "valueFrom": {}, "new": 1}]}}, "host"),
    ({"pod": {"probes": {"liveness": {"httpGet": {"host": "10.0.0.1", "port": 1}}}}}, "host"),
    ({"pod": {"probes": {"liveness": {"new": {}}}}}, "host"),
    ({"pod": {"resources": {"claims": [{"name": "x"}]}}}, "host"),
    ({"pod": {"resources": {"limits": {"devices.kubevirt.io/kvm": "1"}}}}, "host"),
    ({"pod": {"service_account": "admin"}}, "service-accounts"),
    ({"pod": {"pull_secrets": ["x"]}}, "secrets"),
    ({"source": {"token_secret": "x"}}, "secrets"),
    ({"source": {"type": "pvc", "claim": "database"}}, "storage"),
    ({"source": {"type": "s3", "bucket": "b"}}, "storage"),
    ({"source": {"type": "fsx", "file_system": "f"}}, "storage"),
    ({"placement": {"tolerations": [{"operator": "Exists"}]}}, "scheduling"),
    ({"placement": {"tolerations": [{"key": "dedicated"}]}}, "scheduling"),
    ({"placement": {"priority_class": "system-node-critical"}}, "scheduling"),
    ({"placement": {"scheduler": "mine"}}, "scheduling"),
    ({"exposure": {"annotations": {"nginx.org/server-snippets": "x"}}}, "annotations"),
    ({"exposure": {"tls_secret": "console-tls"}}, "secrets"),
    ({"tags": {"nginx.ingress.kubernetes.io/server-snippet": "x"}}, "annotations"),
    ({"scaling": {"triggers": [{"type": "x", "authenticationRef": {"name": "x"}}]}}, "secrets"),
    ({"scaling": {"triggers": [{"type": "x", "new": 1}]}}, "host"),
]


@pytest.mark.parametrize(("patch", "grant"), REACHES)
def test_fields_beyond_the_pods_need_a_grant(patch: dict[str, Any], grant: str) -> None:
    assert grants(patch) == {Grant(grant)}


PLAIN = [
    volume(emptyDir={"medium": "Memory"}),
    volume(downwardAPI={"items": []}),
    volume(projected={"sources": [{"downwardAPI": {}}], "defaultMode": 288}),
    init(
        command=["sh"],
        args=["-c", "true"],
        env=[{"name": "A", "value": "b"}],
        resources={"requests": {"cpu": "1", "nvidia.com/gpu": "1"}},
        volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": True}],
        securityContext={"runAsNonRoot": True, "runAsUser": 1000, "privileged": False},
        ports=[{"containerPort": 1}],
        restartPolicy="Always",
        livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 5},
        lifecycle={"preStop": {"sleep": {"seconds": 1}}},
    ),
    init(securityContext={"capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": False}),
    env(fieldRef={"fieldPath": "status.podIP"}),
    {"pod": {"env": {"A": "b"}, "image": "ours/vllm", "command": ["serve"]}},
    {"pod": {"probes": {"readiness": {"httpGet": {"path": "/x", "port": 8000}}}}},
    {"pod": {"resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "4"}}}},
    {"placement": {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}},
    {"placement": {"node_selector": {"zone": "a"}, "instance_types": ["ml.g5.xlarge"]}},
    {"source": {"type": "huggingface", "revision": "main"}},
    {"tags": {"team": "search"}},
    {"worker_args": ["--chat-template", "/in/the/pod"], "model": "/in/the/image"},
]


@pytest.mark.parametrize("patch", PLAIN)
def test_plain_pod_needs_no_grant(patch: dict[str, Any]) -> None:
    assert grants(patch) == set()


HERE = {"name": "demo", "model": "smollm2-135m-instruct"}


@pytest.mark.parametrize(
    "args",
    [
        ["--chat-template", "/proc/self/environ"],
        ["--chat-template=template.jinja"],
        ["--chat_template=x"],
        ["--allowed-local-media-path", "/"],
        ["--allowed-local-m=/"],
        ["--trust-remote-code"],
        ["--middleware", "os.system"],
        ["--tool-parser-plugin=x.py"],
        ["--logits-processors", "a:b"],
        ["--worker-cls=a.b"],
        ["--compilation-config", '{"cache_dir": "x"}'],
        ["--compilation-config.backend=a.b"],
        ["--lora-modules", "a=b"],
        ["--download-dir=x"],
        ["--log-config-file=x"],
        ["--ssl-ca-certs", "x"],
        ["--hf-overrides", "{}"],
        ["--generation-config=/etc"],
        ["--generation-config", "../x"],
        ["--max-model-len=2048", "/positional"],
        ["--something-new"],
    ],
)
def test_arguments_that_name_files_or_code_need_a_local_grant(args: list[str]) -> None:
    """A worker of this machine runs as the console's own user."""
    assert grants({"worker_args": args}, HERE) == {Grant.MACHINE}
    assert grants({"worker_args": args}) == set(), "a pod has nothing of the console's"
    assert grants({"worker_args": args, "engine": "simulated"}, HERE) == set()


def test_plain_arguments_and_known_models_need_no_local_grant() -> None:
    args = [
        "--max-model-len=2048",
        "--dtype",
        "float32",
        "--enforce-eager",
        "--limit_mm_per_prompt",
    ]
    assert grants({"worker_args": [*args, '{"image": 1}']}, HERE) == set()
    spec = parse({**HERE, "model": "/models/a"})
    assert required_grants(spec, lambda path: path == "/models/a") == []
    (need,) = required_grants(spec, lambda _path: False)
    assert (need.field, need.grant) == ("model", Grant.MACHINE)
