"""Pod rendering: names, files, variables, volumes, security, placement. Pure."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from console.provisioners.base import FileSpec, PermanentError, WorkloadSpec
from console.provisioners.kubernetes.rendering.files import files_hash
from console.provisioners.kubernetes.rendering.names import FILES_DIR
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets
from console.provisioners.kubernetes.rendering.values import (
    cpu_quantity,
    escape_dollars,
    memory_quantity,
)
from console.provisioners.pods import DiskClaim, InitStep, Pod, Volume
from tests.console.provisioners.kubernetes.rendering.matrix import (
    CACHE,
    EVERYTHING,
    GIB,
    ROUTERS,
    S3,
    SECRETS,
    SPECS,
    TARGET,
    WORKER,
    around_changed,
    pod_changed,
    pod_spec,
    rendered,
)


def refused(
    spec: WorkloadSpec, target: RenderingTarget = TARGET, secrets: Secrets = SECRETS
) -> str:
    with pytest.raises(PermanentError) as caught:
        render(spec, target, secrets)
    return f"{caught.value.reason}: {caught.value.message}"


def main(spec: WorkloadSpec) -> dict[str, Any]:
    container: dict[str, Any] = pod_spec(spec)["containers"][0]
    return container


def env(spec: WorkloadSpec) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in main(spec)["env"]}


@pytest.mark.parametrize("name", SPECS)
def test_every_object_is_found_by_its_workload_label(name: str) -> None:
    spec = SPECS[name]
    for data in rendered(spec).values():
        labels = data["metadata"]["labels"]
        assert labels["emberline.dev/workload"] == spec.name
        assert labels["app.kubernetes.io/managed-by"] == "emberline"
        assert labels["app.kubernetes.io/component"] == spec.role
        assert labels["emberline.dev/owner"] == spec.owner.replace("/", ".")


@pytest.mark.parametrize("name", SPECS)
def test_selector_contains_only_the_workload(name: str) -> None:
    spec = SPECS[name]
    bodies = [data.get("spec", {}) for data in rendered(spec).values()]
    found = [body[key] for body in bodies for key in ("selector", "podSelector") if body.get(key)]
    selectors = [one.get("matchLabels", one) for one in found]
    assert selectors
    assert all(one == {"emberline.dev/workload": spec.name} for one in selectors)


def test_user_labels_cannot_hide_an_object() -> None:
    spec = around_changed(WORKER, labels={"emberline.dev/workload": "other", "team": "a"})
    labels = rendered(spec)["Service/demo-worker"]["metadata"]["labels"]
    assert labels["emberline.dev/workload"] == "demo-worker"
    assert labels["team"] == "a"


def test_surrounding_labels_do_not_reach_pods() -> None:
    """A change around the pods restarts none."""
    changed = around_changed(WORKER, labels={"a": "b"}, annotations={"c": "d"}, scrape=())
    template = rendered(changed)["Deployment/demo-worker"]["spec"]["template"]
    assert template == rendered(WORKER)["Deployment/demo-worker"]["spec"]["template"]


@pytest.mark.parametrize(
    ("name", "stable"), [("a" * 57, False), ("a" * 53, True), ("0-worker", False)]
)
def test_name_the_cluster_would_cut_or_reject(name: str, stable: bool) -> None:
    spec = replace(WORKER, name=name, pod=Pod(stable=stable))
    assert refused(spec).startswith("BadName")


@pytest.mark.parametrize(("name", "stable"), [("a" * 56, False), ("a" * 52, True)])
def test_the_longest_name(name: str, stable: bool) -> None:
    spec = replace(WORKER, name=name, pod=Pod(stable=stable))
    names = [
        data["metadata"]["name"]
        for data in rendered(spec).values()
        if data["kind"] in ("Service", "Deployment", "StatefulSet")
    ]
    assert max(map(len, names)) <= 63


def test_owner_name_too_long_for_a_label() -> None:
    assert refused(replace(WORKER, owner=f"endpoint/{'a' * 60}")).startswith("BadName")


def test_no_image() -> None:
    assert refused(replace(WORKER, image="")).startswith("NoImage")


def test_an_unknown_port_has_no_number() -> None:
    spec = replace(WORKER, ports=("http", "debug"))
    assert "'debug'" in refused(spec)
    numbers = {
        port["name"]: port["containerPort"]
        for port in main(pod_changed(spec, ports={"debug": 1234, "http": 9}))["ports"]
    }
    assert numbers == {"http": 9, "debug": 1234, "kv-events": 5557, "kv-replay": 5558}


def test_channels_use_the_headless_service() -> None:
    objects = rendered(WORKER)
    ports = {
        name: [port["name"] for port in objects[f"Service/{name}"]["spec"]["ports"]]
        for name in ("demo-worker", "demo-worker-pods")
    }
    assert ports == {
        "demo-worker": ["http"],
        "demo-worker-pods": ["http", "kv-events", "kv-replay"],
    }


def test_dollar_sign_is_escaped() -> None:
    spec = replace(
        WORKER, argv=("sh", "-c", "echo $HOME $(date) $$ {replica} $(A)"), env={"A": "1"}
    )
    assert main(spec)["command"][2] == "echo $$HOME $$(date) $$$$ $(EMBERLINE_REPLICA) $(A)"


@pytest.mark.parametrize(
    ("text", "sent"), [("$A", "$$A"), ("$(B)", "$$(B)"), ("$(A)", "$(A)"), ("100$", "100$$")]
)
def test_literal(text: str, sent: str) -> None:
    assert escape_dollars(text, {"A"}) == sent


def test_replica_gets_its_index() -> None:
    assert env(WORKER)["EMBERLINE_REPLICA"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    path = env(CACHE)["EMBERLINE_REPLICA"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.labels['apps.kubernetes.io/pod-index']"
    assert env(CACHE)["POD"]["value"] == "$(EMBERLINE_REPLICA)"
    assert main(CACHE)["env"][0]["name"] == "EMBERLINE_REPLICA"


def test_variable_follows_those_it_references() -> None:
    spec = pod_changed(
        replace(WORKER, env={"A": "$(B)/$(RAW)/$(EMBERLINE_L2_PASSWORD)", "B": "$x"}),
        env_raw=({"name": "RAW", "value": "1"},),
    )
    names = [entry["name"] for entry in main(spec)["env"]]
    assert names == ["EMBERLINE_REPLICA", "EMBERLINE_L2_PASSWORD", "RAW", "B", "A"]
    assert env(spec)["A"]["value"] == "$(B)/$(RAW)/$(EMBERLINE_L2_PASSWORD)"
    assert env(spec)["B"]["value"] == "$$x"


def test_secrets_are_only_in_secret_objects() -> None:
    for name, data in rendered(CACHE).items():
        assert ("wurst" in str(data)) is False, name
    secret = rendered(CACHE)["Secret/cache-shared-files"]["data"]
    assert base64.b64decode(next(iter(secret.values()))) == b"wurst"
    variables = rendered(WORKER)["Secret/demo-worker-env"]["data"]
    assert base64.b64decode(variables["EMBERLINE_L2_PASSWORD"]) == b"wurst-and-cheese"
    assert "wurst" not in repr(SECRETS)


def test_secret_file_is_readable_by_the_group_only() -> None:
    objects = rendered(ROUTERS)
    assert set(objects["Secret/demo-router-files"]["data"]) == {"keys.json"}
    assert set(objects["ConfigMap/demo-router-files"]["data"]) == {"config.json"}
    # The kubelet writes files as root; a non-root process reads them through its group.
    assert pod_spec(ROUTERS)["volumes"][0]["projected"]["defaultMode"] == 0o440
    assert pod_spec(ROUTERS)["securityContext"]["fsGroup"]


def test_unread_secret() -> None:
    assert "'EMBERLINE_L2_PASSWORD'" in refused(WORKER, secrets=Secrets())
    assert "'l2/password'" in refused(CACHE, secrets=Secrets())


def test_file_in_a_folder_keeps_its_path() -> None:
    sources = pod_spec(CACHE)["volumes"][0]["projected"]["sources"]
    (item,) = sources[1]["secret"]["items"]
    assert item["path"] == "l2/password"
    assert item["key"] in rendered(CACHE)["Secret/cache-shared-files"]["data"]


def test_added_flat_file_needs_no_new_pod() -> None:
    more = replace(ROUTERS, live_files=(*ROUTERS.live_files, FileSpec("more.json", "{}")))
    assert pod_spec(more) == pod_spec(ROUTERS)
    assert "more.json" in rendered(more)["ConfigMap/demo-router-files"]["data"]


def test_changed_files_change_the_hash() -> None:
    config = FileSpec("config.json", "{}")
    more = replace(ROUTERS, live_files=(ROUTERS.live_files[0], config))
    assert files_hash(more, SECRETS) != files_hash(ROUTERS, SECRETS)
    secret = replace(ROUTERS, live_files=(FileSpec("keys.json", "{}", secret=True), config))
    assert files_hash(more, SECRETS) != files_hash(secret, SECRETS)


def test_file_that_differs_by_replica() -> None:
    spec = replace(ROUTERS, live_files=(FileSpec("a", "I am {replica}"),))
    assert "{replica}" in refused(spec)


@pytest.mark.parametrize("path", ["/etc/passwd", "../a", ".emberline/x"])
def test_secret_file_stays_in_the_folder(path: str) -> None:
    spec = replace(CACHE, secret_files={path: "/x"})
    assert "is outside" in refused(spec, secrets=Secrets(files={path: "x"}))


@pytest.mark.parametrize("path", [FILES_DIR, f"{FILES_DIR}/disk", "/tmp/", "/dev/shm"])
def test_mounts_do_not_overlap(path: str) -> None:
    spec = pod_changed(ROUTERS, shm_bytes=GIB, volumes=(Volume("v", {"emptyDir": {}}, path),))
    assert path.rstrip("/") in refused(spec)


def test_disk_is_mounted_and_created_for_each_replica() -> None:
    body = rendered(CACHE)["StatefulSet/cache-shared"]["spec"]
    (claim,) = body["volumeClaimTemplates"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "12Gi"
    assert claim["metadata"]["labels"]["emberline.dev/workload"] == "cache-shared"
    assert {"name": "disk", "mountPath": "/emberline/disk"} in main(CACHE)["volumeMounts"]


def test_separate_disk_needs_stable_replicas() -> None:
    spec = pod_changed(WORKER, disks=(DiskClaim("disk", "/d", GIB),))
    assert "stable" in refused(spec)


def share(spec: WorkloadSpec, space: str = "models") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the volume and its claim."""
    objects = rendered(spec, RenderingTarget(space, EVERYTHING)).values()
    (volume,) = (data for data in objects if data["kind"] == "PersistentVolume")
    (claim,) = (data for data in objects if data["kind"] == "PersistentVolumeClaim")
    return volume, claim


def test_share_is_a_volume_with_a_matching_claim() -> None:
    volume, claim = share(SPECS["worker-s3"])
    assert "namespace" not in volume["metadata"]
    assert volume["spec"]["claimRef"]["name"] == claim["metadata"]["name"]
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert volume["spec"]["mountOptions"] == ["region eu-central-1", "allow-other"]
    claimed = {"claimName": claim["metadata"]["name"], "readOnly": True}
    mounted = {"name": "model", "persistentVolumeClaim": claimed}
    assert mounted in pod_spec(SPECS["worker-s3"])["volumes"]


def test_changed_source_is_another_share() -> None:
    """Both are immutable, and pods with either run on one node during a rollout."""
    source = {**S3, "mountOptions": ["prefix v2/"]}
    other = pod_changed(WORKER, volumes=(Volume("model", source, "/opt/ml/model", True),))
    for one, two in zip(share(SPECS["worker-s3"]), share(other), strict=True):
        assert one["metadata"]["name"] != two["metadata"]["name"]
    handles = {
        volume["spec"]["csi"]["volumeHandle"]
        for volume, _ in (share(SPECS["worker-s3"]), share(other), share(other, "elsewhere"))
    }
    assert len(handles) == 3
    assert share(other, "elsewhere")[0]["metadata"]["name"] != share(other)[0]["metadata"]["name"]


def test_file_system_handle_is_its_name() -> None:
    volume, _ = share(SPECS["worker-fsx"])
    assert volume["spec"]["csi"]["volumeHandle"] == "fs-0123456789abcdef0"
    assert "mountOptions" not in volume["spec"]


@pytest.mark.parametrize(
    ("name", "capability"), [("worker-s3", "s3-csi"), ("worker-fsx", "fsx-csi")]
)
def test_share_needs_its_driver(name: str, capability: str) -> None:
    without = RenderingTarget("models", EVERYTHING - {capability})
    assert refused(SPECS[name], without).startswith("MissingCapability")


def test_pod_volume_needs_its_driver() -> None:
    inline = Volume("efs", {"csi": {"driver": "efs.csi.aws.com"}}, "/efs")
    without = RenderingTarget("models", EVERYTHING - {"efs-csi"})
    assert "EFS" in refused(pod_changed(WORKER, volumes=(inline,)), without)


@pytest.mark.parametrize("name", SPECS)
def test_restricted(name: str) -> None:
    pod = pod_spec(SPECS[name])
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
    assert pod["enableServiceLinks"] is False


def test_token_is_mounted_only_for_service_discovery() -> None:
    assert pod_spec(WORKER)["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod_spec(WORKER)
    assert pod_spec(ROUTERS)["automountServiceAccountToken"] is True
    assert pod_spec(ROUTERS)["serviceAccountName"] == "demo-router"


def test_own_processes_write_only_to_tmp() -> None:
    for spec, read_only in ((ROUTERS, True), (CACHE, True), (WORKER, False)):
        assert main(spec)["securityContext"]["readOnlyRootFilesystem"] is read_only
        mounted = [mount["mountPath"] for mount in main(spec)["volumeMounts"]]
        assert ("/tmp" in mounted) is read_only


def test_first_process_drains_before_it_stops() -> None:
    pod = pod_spec(WORKER)
    assert main(WORKER)["lifecycle"]["preStop"] == {"sleep": {"seconds": 10}}
    assert pod["terminationGracePeriodSeconds"] == 45
    assert "lifecycle" not in main(pod_changed(WORKER, drain_s=0))


def test_start_may_take_its_configured_time() -> None:
    probe = main(WORKER)["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] == 1800
    assert rendered(WORKER)["Deployment/demo-worker"]["spec"]["progressDeadlineSeconds"] == 1860


def test_probe_has_one_method() -> None:
    spec = SPECS["worker-raw"]
    assert "httpGet" not in main(spec)["livenessProbe"]
    assert main(spec)["livenessProbe"]["failureThreshold"] == 6
    assert main(spec)["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 8000}


@pytest.mark.parametrize(("replicas", "surge"), [(1, 1), (8, 1), (9, "25%")])
def test_replicas_are_at_least_the_minimum(replicas: int, surge: object) -> None:
    body = rendered(replace(WORKER, replicas=replicas))["Deployment/demo-worker"]["spec"]
    assert body["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": surge}
    assert body["replicas"] == replicas


def test_earlier_types_are_preferred() -> None:
    affinity = pod_spec(SPECS["worker-gpu"])["affinity"]["nodeAffinity"]
    preferred = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    weights = {
        entry["preference"]["matchExpressions"][0]["values"][0]: entry["weight"]
        for entry in preferred
    }
    assert weights == {"ml.p5.48xlarge": 100, "ml.p4d.24xlarge": 51, "ml.g5.12xlarge": 1}
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == [*weights]


def test_weights_of_many_types_are_valid() -> None:
    many = pod_changed(WORKER, instance_types=tuple(f"t{n}" for n in range(150)))
    preferred = pod_spec(many)["affinity"]["nodeAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    weights = [entry["weight"] for entry in preferred]
    assert weights == sorted(weights, reverse=True)
    assert (weights[0], weights[-1]) == (100, 1)


def test_each_alternative_requests_its_type() -> None:
    affinity = pod_spec(SPECS["worker-raw"])["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert len(terms) == 2
    assert all(term["matchExpressions"][-1]["values"] == ["ml.g5.8xlarge"] for term in terms)


def test_gpus_are_requested_and_their_taint_tolerated() -> None:
    spec = SPECS["worker-gpu"]
    for part in ("requests", "limits"):
        assert main(spec)["resources"][part]["nvidia.com/gpu"] == "2"
    assert pod_spec(spec)["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert "tolerations" not in pod_spec(WORKER)


def test_working_directory_is_the_folder_with_the_files_by_default() -> None:
    assert main(SPECS["worker-raw"])["workingDir"] == "/srv"
    assert main(WORKER)["workingDir"] == FILES_DIR


def test_init_step_has_its_resources() -> None:
    """A quota rejects pods in which a container requests nothing."""
    spec = pod_changed(WORKER, init=(InitStep("a", ("true",)), InitStep("b", ("true",), cpus=0.5)))
    first, second = pod_spec(spec)["initContainers"]
    assert first["resources"]["requests"] == {"cpu": "7500m", "memory": "24Gi"}
    assert second["resources"]["requests"]["cpu"] == "500m"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1, "1"), (GIB, "1Gi"), (1536 * 2**20, "1536Mi"), (1_265_000_000, "1265M")],
)
def test_memory(size: int, text: str) -> None:
    assert memory_quantity(size) == text


@pytest.mark.parametrize(("cores", "text"), [(1.0, "1"), (0.5, "500m"), (7.5, "7500m")])
def test_cpu(cores: float, text: str) -> None:
    assert cpu_quantity(cores) == text


def test_pods_without_gpus_avoid_gpu_nodes() -> None:
    """A router alone on a GPU node would block its removal."""
    terms = pod_spec(replace(ROUTERS, gpus=0))["affinity"]["nodeAffinity"]
    (preferred,) = terms["preferredDuringSchedulingIgnoredDuringExecution"]
    found = {one["key"]: one["operator"] for one in preferred["preference"]["matchExpressions"]}
    assert found == {
        "nvidia.com/gpu.present": "DoesNotExist",
        "amd.com/gpu.present": "DoesNotExist",
    }
    assert "affinity" not in pod_spec(replace(ROUTERS, gpus=1))
    own = pod_changed(ROUTERS, instance_types=("ml.c5.xlarge",))
    required = pod_spec(own)["affinity"]["nodeAffinity"]
    assert "preferredDuringSchedulingIgnoredDuringExecution" not in required
