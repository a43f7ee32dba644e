"""Typical and unusual workloads, shared by all rendering tests.

Together they contain every shape of a spec, so the golden files and a real API server see
everything `render` can produce.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from console.provisioners.base import FileSpec, Probe, WorkloadSpec
from console.provisioners.kubernetes.api.capabilities import CAPABILITIES
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets
from console.provisioners.pods import (
    Around,
    Autoscale,
    DiskClaim,
    Exposure,
    InitStep,
    Peer,
    Pod,
    Scrape,
    SecretKey,
    Volume,
)

GIB = 2**30
EVERYTHING = frozenset(CAPABILITIES)
TARGET = RenderingTarget("models", EVERYTHING)
BARE = RenderingTarget("models")
SECRETS = Secrets(env={"EMBERLINE_L2_PASSWORD": "wurst-and-cheese"}, files={"l2/password": "wurst"})
ROUTER = Peer("router", "endpoint/demo")

WORKER = WorkloadSpec(
    owner="endpoint/demo",
    name="demo-worker",
    role="worker",
    image="registry.example/emberline/worker:1.0",
    argv=("python3", "-m", "vllm", "--host", "{host}", "--port", "{port:http}", "--note", "$HOME"),
    ports=("http",),
    channels=("kv-events", "kv-replay"),
    probe=Probe("/health", "http"),
    replicas=2,
    env={"PYTHONHASHSEED": "0", "EVENTS": '{"endpoint":"{channel:kv-events}"}'},
    secret_env={"EMBERLINE_L2_PASSWORD": "/var/secrets/l2"},
    cpus=7.5,
    memory_bytes=24 * GIB,
    stop_grace_s=35,
    pod=Pod(shm_bytes=9 * GIB, startup_s=1800, drain_s=10),
    around=Around(
        reach={
            "http": (ROUTER, Peer("console"), Peer("prometheus")),
            "kv-events": (ROUTER,),
            "kv-replay": (ROUTER,),
        },
        scrape=(Scrape("http"),),
    ),
)

ROUTERS = WorkloadSpec(
    owner="endpoint/demo",
    name="demo-router",
    role="router",
    image="registry.example/emberline/engine:1.0",
    argv=("python3", "-m", "routing.engine", "--config", "{dir}/config.json"),
    ports=("http", "admin"),
    probe=Probe("/healthz", "admin"),
    replicas=2,
    live_files=(
        FileSpec("keys.json", '{"keys":[]}', secret=True),
        FileSpec("config.json", '{"listen":"{host}:{port:http}"}'),
    ),
    cpus=1.0,
    memory_bytes=512 * 2**20,
    stop_grace_s=35,
    pod=Pod(startup_s=60, drain_s=5, run_as_user=10_001),
    around=Around(
        reach={"http": (), "admin": (Peer("console"),)},
        watches_services=("demo-worker-pods",),
        scrape=(Scrape("admin"),),
        autoscale=Autoscale(2, 5, cpu_percent=70),
        exposure=Exposure("ingress", "http", host="demo.example.org", class_name="nginx"),
        annotations={"example.org/cost-centre": "42"},
    ),
)

CACHE = WorkloadSpec(
    owner="cache-tier/shared",
    name="cache-shared",
    role="cache-node",
    image="registry.example/emberline/engine:1.0",
    argv=(
        *("python3", "-m", "cachetier.engine", "--listen", "{host}:{port:resp}"),
        *("--admin", "{host}:{port:admin}", "--password-file", "{dir}/l2/password"),
        *("--disk", "/emberline/disk:10737418240", "--shm", "shared-{replica}"),
    ),
    ports=("resp", "admin"),
    probe=Probe("/healthz", "admin"),
    replicas=3,
    env={"POD": "{replica}"},
    secret_files={"l2/password": "/var/secrets/l2"},
    live_files=(FileSpec("memory", "1073741824\n"),),
    cpus=0.5,
    memory_bytes=1_265_000_000,
    stop_grace_s=10,
    pod=Pod(
        stable=True,
        disks=(DiskClaim("disk", "/emberline/disk", 12 * GIB, "gp3"),),
        startup_s=60,
        run_as_user=10_001,
    ),
    around=Around(
        reach={"resp": (Peer("worker"),), "admin": (Peer("console"),)}, scrape=(Scrape("admin"),)
    ),
)

S3 = {
    "mountOptions": ["region eu-central-1"],
    "csi": {
        "driver": "s3.csi.aws.com",
        "volumeHandle": "s3-weights-demo",
        "volumeAttributes": {"bucketName": "weights"},
    },
}
FSX = {
    "csi": {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": "fs-0123456789abcdef0",
        "volumeAttributes": {"dnsname": "fs.example.org", "mountname": "abcdef"},
    }
}


def pod_changed(spec: WorkloadSpec, **changes: Any) -> WorkloadSpec:
    return replace(spec, pod=replace(spec.pod or Pod(), **changes))


def around_changed(spec: WorkloadSpec, **changes: Any) -> WorkloadSpec:
    return replace(spec, around=replace(spec.around or Around(), **changes))


def exposed(kind: str, **fields: Any) -> WorkloadSpec:
    return around_changed(ROUTERS, exposure=Exposure(kind, "http", **fields))


def _gpu() -> WorkloadSpec:
    return pod_changed(
        replace(WORKER, gpus=2),
        instance_types=("ml.p5.48xlarge", "ml.p4d.24xlarge", "ml.g5.12xlarge"),
        tolerations=({"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"},),
        priority_class="models",
        node_selector={"disk": "fast"},
        image_pull_secrets=("registry",),
        service_account="weights",
        scheduler="default-scheduler",
    )


def _raw() -> WorkloadSpec:
    """Return a spec with every raw Kubernetes field."""
    return pod_changed(
        WORKER,
        working_dir="/srv",
        resources={"requests": {"nvidia.com/mig-1g.10gb": "1"}, "limits": {"cpu": "8"}}
        | {"limits": {"nvidia.com/mig-1g.10gb": "1", "cpu": "8"}},
        probes={
            "livenessProbe": {"tcpSocket": {"port": 8000}, "periodSeconds": 20},
            "readiness": {"httpGet": {"path": "/ready", "port": 8000}},
        },
        init_containers=(
            {
                "name": "first",
                "image": "registry.example/first:1",
                "command": ["true"],
                "securityContext": {"runAsUser": 1234},
            },
        ),
        volumes=(Volume("notes", {}, "/notes"), Volume("sub", {"emptyDir": {}}, "/s", True, "a/b")),
        volumes_raw=({"name": "notes", "configMap": {"name": "notes", "optional": True}},),
        env_raw=(
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "PYTHONHASHSEED", "value": "7"},
        ),
        node_affinity={
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                    {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
                ]
            }
        },
        instance_types=("ml.g5.8xlarge",),
    )


def _steps() -> WorkloadSpec:
    step = InitStep(
        name="model-download",
        argv=("sh", "-c", 'echo "$1" $(date)', "x"),
        env={"HF_HOME": "/opt/ml/model/.cache"},
        secret_env={"HF_TOKEN": SecretKey("hub", "token")},
        mounts={"model": "/opt/ml/model"},
        cpus=1.0,
        memory_bytes=2 * GIB,
    )
    plain = InitStep("plugin", ("true",), image="registry.example/emberline/worker:1.0")
    model = Volume("model", {"emptyDir": {"sizeLimit": "40Gi"}}, "/opt/ml/model")
    return pod_changed(
        WORKER,
        init=(step, plain),
        volumes=(model,),
        secret_env={"AWS_ACCESS_KEY_ID": SecretKey("aws", "id")},
    )


_PROMETHEUS = {
    "type": "prometheus",
    "metadata": {"serverAddress": "http://prom:9090", "query": "sum(up)", "threshold": 5}
    | {"ignoreNullValues": False},
}
_CLOUDWATCH = {
    "type": "aws-cloudwatch",
    "metricType": "Value",
    "useCachedMetrics": True,
    "metadata": {"namespace": "n", "metricName": "m", "targetMetricValue": "1.5"},
}
_SCALED = Autoscale(0, 20, (_PROMETHEUS, _CLOUDWATCH), cpu_percent=80, polling_s=15)

SPECS: dict[str, WorkloadSpec] = {
    "worker": WORKER,
    "router": ROUTERS,
    "cache": CACHE,
    "worker-gpu": _gpu(),
    "worker-amd": pod_changed(replace(WORKER, gpus=1), gpu_resource="amd.com/gpu"),
    "worker-raw": _raw(),
    "worker-steps": _steps(),
    "worker-s3": pod_changed(WORKER, volumes=(Volume("model", S3, "/opt/ml/model", True),)),
    "worker-fsx": pod_changed(WORKER, volumes=(Volume("model", FSX, "/opt/ml/model", True),)),
    "worker-pvc": pod_changed(
        WORKER,
        volumes=(
            Volume(
                "model",
                {"persistentVolumeClaim": {"claimName": "weights", "readOnly": True}},
                "/opt/ml/model",
                True,
            ),
        ),
    ),
    "worker-keda": around_changed(replace(WORKER, replicas=3), autoscale=_SCALED),
    "worker-paused": around_changed(replace(WORKER, replicas=0), autoscale=_SCALED),
    "router-gateway": exposed("gateway", gateway="edge/public", host="demo.example.org"),
    "router-own-gateway": exposed(
        "gateway", class_name="envoy", host="demo.example.org", issuer="ClusterIssuer/letsencrypt"
    ),
    "router-ingress-tls": exposed(
        "ingress", host="demo.example.org", issuer="mine", tls_secret="demo-certificate"
    ),
    "router-loadbalancer": exposed(
        "loadbalancer", host="demo.example.org", annotations={"example.org/internal": "true"}
    ),
    "router-account": pod_changed(ROUTERS, service_account="routers"),
    "plain": WorkloadSpec(
        owner="endpoint/x",
        name="x",
        role="worker",
        image="i",
        argv=("true",),
        ports=("http",),
        probe=Probe("/", "http"),
    ),
}


def rendered(
    spec: WorkloadSpec, target: RenderingTarget = TARGET, secrets: Secrets = SECRETS
) -> dict[str, dict[str, Any]]:
    """Return objects by kind and name ("Service/demo-worker"), in order."""
    return {
        f"{data['kind']}/{data['metadata']['name']}": data for data in render(spec, target, secrets)
    }


def pod_spec(spec: WorkloadSpec, target: RenderingTarget = TARGET) -> dict[str, Any]:
    kind = "StatefulSet" if spec.pod and spec.pod.stable else "Deployment"
    spec_of: dict[str, Any] = rendered(spec, target)[f"{kind}/{spec.name}"]["spec"]["template"]
    return dict(spec_of["spec"])
