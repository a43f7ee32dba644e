"""Cluster-specific cases: foreign edits, rejections, name conflicts, interrupted applies."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from console.provisioners.base import (
    FileSpec,
    Observation,
    PermanentError,
    ProvisionError,
    Ref,
    ReplicaState,
    TemporaryError,
    WorkloadSpec,
)
from console.provisioners.kubernetes.api.access import ClusterAccess
from console.provisioners.kubernetes.api.kinds import APPLIED_KINDS
from console.provisioners.kubernetes.provisioner import KubernetesProvisioner
from console.provisioners.pods import Around, Autoscale, Exposure, Peer, Scrape, Volume
from tests.console.provisioners.contract import gone, settle
from tests.console.provisioners.kuberig import CAPABILITIES, KubeRig
from tests.support.kube.client import KINDS
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

CRASHES = Path(__file__).parents[1] / "crashes"
REF = Ref("kubernetes", "demo")
LABEL = "emberline.dev/workload=demo"
S3 = {"driver": "s3.csi.aws.com", "volumeHandle": "models", "volumeAttributes": {"bucketName": "m"}}
BUCKET = Volume("model", {"csi": S3}, "/model", read_only=True)


@pytest.fixture
def provisioner_rig(cluster: Cluster) -> KubeRig:
    return KubeRig(cluster)


def everything(rig: KubeRig) -> dict[str, str]:
    """Return name and content hash of every object in the namespace with the workload's label."""
    found = {}
    for kind in {one.kind for one in APPLIED_KINDS} & set(KINDS) | {
        "Pod",
        "ReplicaSet",
        "EndpointSlice",
    }:
        for body in rig.cluster.api.list(kind, rig.namespace, LABEL):
            claimed = body.get("spec", {}).get("claimRef", {}).get("namespace", rig.namespace)
            if claimed != rig.namespace:  # a cluster-wide volume of another test
                continue
            found[f"{kind}/{body['metadata']['name']}"] = body["metadata"]["uid"]
    return found


def refusal(action: Any) -> ProvisionError:
    with pytest.raises(ProvisionError) as caught:
        action()
    return caught.value


def rich(rig: KubeRig) -> WorkloadSpec:
    """Return a spec with every optional object."""
    around = Around(
        reach={"http": (Peer("router", "endpoint/demo"),)},
        watches_services=("demo-pods",),
        scrape=(Scrape("http"),),
        autoscale=Autoscale(1, 4, triggers=({"type": "cpu", "metadata": {"value": "50"}},)),
        exposure=Exposure("gateway", "http", host="demo.example", gateway="infra/public"),
        labels={"team": "a"},
        annotations={"note": "x"},
    )
    return dataclasses.replace(rig.spec("demo", 2), around=around, cpus=0.5, memory_bytes=2**30)


def edit(rig: KubeRig, kind: str, name: str, patch: dict[str, Any]) -> None:
    """Patch like kubectl edit."""
    path = rig.cluster.api.path(kind, rig.namespace, name)
    media = "application/merge-patch+json"
    rig.cluster.api.ask("PATCH", path, patch, media, fieldManager="kubectl-edit")


class TestDrift:
    def test_applied_objects_have_no_drift(self, provisioner_rig: KubeRig) -> None:
        settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        assert provisioner_rig.provisioner.drift(REF) == ()
        provisioner_rig.provisioner.apply(rich(provisioner_rig))
        assert provisioner_rig.provisioner.drift(REF) == ()
        assert "ScaledObject/demo" in everything(provisioner_rig)

    def test_external_edit_is_named_and_healed(self, provisioner_rig: KubeRig) -> None:
        spec = provisioner_rig.spec("demo", 2)
        settle(provisioner_rig, spec)
        edit(provisioner_rig, "Deployment", "demo", {"spec": {"replicas": 3}})
        edit(
            provisioner_rig,
            "Service",
            "demo",
            {"metadata": {"labels": {"emberline.dev/owner": "me"}}},
        )
        (scaled, relabelled) = sorted(
            provisioner_rig.provisioner.drift(REF), key=lambda one: one.key
        )
        assert (scaled.key, scaled.wanted, scaled.found) == ("Deployment/demo.spec.replicas", 2, 3)
        assert scaled.manager == relabelled.manager == "kubectl-edit"
        assert scaled.since > 1.7e9
        assert relabelled.path == ".metadata.labels.emberline.dev/owner"
        fresh = provisioner_rig.another()
        assert {one.key for one in fresh.observe(REF).drift} == {scaled.key, relabelled.key}
        fresh.apply(spec)  # observed, and left unchanged
        assert provisioner_rig.get("Deployment", "demo")["spec"]["replicas"] == 3
        fresh.heal(REF)
        settle(provisioner_rig, spec)
        assert provisioner_rig.provisioner.drift(REF) == ()
        assert fresh.observe(REF).drift == ()

    def test_conflict_is_explained_and_other_fields_are_applied(
        self, provisioner_rig: KubeRig
    ) -> None:
        settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        edit(provisioner_rig, "Deployment", "demo", {"spec": {"minReadySeconds": 1, "replicas": 3}})
        other = dataclasses.replace(
            provisioner_rig.spec("demo", 2), files=(FileSpec("conf/worker.json", "new"),)
        )
        error = refusal(lambda: provisioner_rig.provisioner.apply(other))
        assert isinstance(error, PermanentError)
        assert error.reason == "FieldConflict"
        assert ".spec.replicas (set by kubectl-edit)" in error.message
        assert ".spec.minReadySeconds (set by kubectl-edit)" in error.message
        assert "new" in provisioner_rig.get("ConfigMap", "demo-files")["data"].values()
        assert refusal(lambda: provisioner_rig.provisioner.apply(other)).reason == "FieldConflict"
        drifted = provisioner_rig.provisioner.observe(REF).drift  # drift offered for adoption
        keys = ("Deployment/demo.spec.minReadySeconds", "Deployment/demo.spec.replicas")
        assert tuple(sorted(one.key for one in drifted)) == keys
        assert {one.manager for one in drifted} == {"kubectl-edit"}
        provisioner_rig.provisioner.adopt(REF, keys[:1])
        error = refusal(lambda: provisioner_rig.provisioner.apply(other))
        assert "minReadySeconds" not in error.message
        provisioner_rig.provisioner.heal(REF)
        assert len(settle(provisioner_rig, other).replicas) == 2
        assert provisioner_rig.get("Deployment", "demo")["spec"]["minReadySeconds"] == 1

    def test_adopted_field_stays_foreign_until_the_spec_changes(
        self, provisioner_rig: KubeRig
    ) -> None:
        spec = provisioner_rig.spec("demo", 1)
        settle(provisioner_rig, spec)
        edit(provisioner_rig, "Deployment", "demo", {"spec": {"replicas": 2}})
        (drifted,) = provisioner_rig.provisioner.drift(REF)
        provisioner_rig.provisioner.adopt(REF, (drifted.key,))
        assert provisioner_rig.provisioner.drift(REF) == ()  # immediately, not after the next apply
        provisioner_rig.provisioner.apply(spec)
        assert provisioner_rig.provisioner.drift(REF) == ()
        assert provisioner_rig.get("Deployment", "demo")["spec"]["replicas"] == 2
        changed = provisioner_rig.spec("demo", 1, revision="2")
        provisioner_rig.provisioner.apply(changed)
        assert provisioner_rig.get("Deployment", "demo")["spec"]["replicas"] == 2
        edit(provisioner_rig, "Deployment", "demo", {"spec": {"replicas": 4}})
        assert provisioner_rig.provisioner.drift(REF) == ()

    def test_deleted_object_is_recreated(self, provisioner_rig: KubeRig) -> None:
        spec = provisioner_rig.spec("demo", 1)
        settle(provisioner_rig, spec)
        provisioner_rig.cluster.api.delete("Deployment", provisioner_rig.namespace, "demo")
        seen = provisioner_rig.provisioner.observe(REF)
        assert "was deleted outside Emberline" in seen.message
        assert settle(provisioner_rig, spec).replicas
        provisioner_rig.cluster.api.delete("Service", provisioner_rig.namespace, "demo-pods")
        (missing,) = provisioner_rig.provisioner.drift(REF)
        assert missing.key == "Service/demo-pods"
        provisioner_rig.another().apply(spec)
        assert provisioner_rig.get("Service", "demo-pods") is not None


class TestChanges:
    def test_unwanted_objects_are_removed(self, provisioner_rig: KubeRig) -> None:
        provisioner_rig.provisioner.apply(rich(provisioner_rig))
        more = set(everything(provisioner_rig))
        assert {"HTTPRoute/demo", "ScaledObject/demo", "PodDisruptionBudget/demo"} <= more
        settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        assert not any(name.startswith("HTTPRoute/") for name in everything(provisioner_rig))
        assert "ScaledObject/demo" not in everything(provisioner_rig)

    def test_autoscaler_starts_from_the_current_count_and_returns_it(
        self, provisioner_rig: KubeRig
    ) -> None:
        settle(provisioner_rig, provisioner_rig.spec("demo", 3))
        provisioner_rig.provisioner.apply(rich(provisioner_rig))
        assert provisioner_rig.get("Deployment", "demo")["spec"]["replicas"] == 3
        assert provisioner_rig.provisioner.observe(REF).wanted == 3
        scale = {"spec": {"replicas": 4}}
        path = provisioner_rig.cluster.api.path("Deployment", provisioner_rig.namespace, "demo")
        media = "application/merge-patch+json"
        who = "kube-controller-manager"
        provisioner_rig.cluster.api.ask("PATCH", path, scale, media, fieldManager=who)
        assert provisioner_rig.provisioner.drift(REF) == ()
        assert provisioner_rig.provisioner.observe(REF).wanted == 4
        paused = dataclasses.replace(rich(provisioner_rig), replicas=0)
        assert settle(provisioner_rig, paused).replicas == ()
        provisioner_rig.provisioner.apply(rich(provisioner_rig))
        assert provisioner_rig.get("Deployment", "demo")["spec"]["replicas"] == 2
        assert settle(provisioner_rig, provisioner_rig.spec("demo", 1)).wanted is None

    def test_pods_reload_changed_files(self, provisioner_rig: KubeRig) -> None:
        spec = dataclasses.replace(
            provisioner_rig.spec("demo", 1), live_files=(FileSpec("t.json", "1"),)
        )
        settle(provisioner_rig, spec)
        changed = dataclasses.replace(spec, live_files=(FileSpec("t.json", "2"),))
        provisioner_rig.provisioner.apply(changed)
        (pod,) = provisioner_rig.cluster.pods(provisioner_rig.namespace, LABEL)
        before = pod["metadata"]["annotations"]["emberline.dev/files"]
        provisioner_rig.provisioner.apply(
            dataclasses.replace(spec, live_files=(FileSpec("t.json", "3"),))
        )
        (pod,) = provisioner_rig.cluster.pods(provisioner_rig.namespace, LABEL)
        assert pod["metadata"]["annotations"]["emberline.dev/files"] != before

    def test_changed_secret_restarts_nothing(
        self, provisioner_rig: KubeRig, tmp_path: Path
    ) -> None:
        file = tmp_path / "key"
        file.write_text("first\n")
        spec = dataclasses.replace(
            provisioner_rig.spec("demo", 1), secret_env={"API_KEY": str(file)}
        )
        before = settle(provisioner_rig, spec)
        assert provisioner_rig.get("Secret", "demo-env")["data"] == {"API_KEY": "Zmlyc3Q="}
        file.write_text("second\n")
        provisioner_rig.provisioner.apply(spec)
        assert provisioner_rig.get("Secret", "demo-env")["data"] == {"API_KEY": "c2Vjb25k"}
        assert settle(provisioner_rig, spec).replicas == before.replicas
        assert "first" not in str(provisioner_rig.get("ConfigMap", "demo"))
        assert "Zmlyc3Q" not in str(provisioner_rig.get("ConfigMap", "demo"))
        file.unlink()
        assert refusal(lambda: provisioner_rig.provisioner.apply(spec)).reason == "SecretMissing"


class TestRefusals:
    def test_foreign_object_is_not_overwritten(self, provisioner_rig: KubeRig) -> None:
        api, space = provisioner_rig.cluster.api, provisioner_rig.namespace
        api.create("ConfigMap", space, {"metadata": {"name": "demo"}, "data": {"a": "b"}})
        error = refusal(lambda: provisioner_rig.provisioner.apply(provisioner_rig.spec("demo", 1)))
        assert (error.reason, type(error)) == ("NameTaken", PermanentError)
        assert not provisioner_rig.provisioner.observe(REF).exists
        provisioner_rig.provisioner.delete(REF)
        assert provisioner_rig.get("ConfigMap", "demo")["data"] == {"a": "b"}
        api.delete("ConfigMap", space, "demo")
        ports = {"ports": [{"port": 80}]}
        api.create("Service", space, {"metadata": {"name": "demo"}, "spec": ports})
        assert (
            refusal(
                lambda: provisioner_rig.provisioner.apply(provisioner_rig.spec("demo", 1))
            ).reason
            == "NameTaken"
        )
        assert provisioner_rig.get("Service", "demo")["spec"]["ports"][0]["port"] == 80
        provisioner_rig.provisioner.delete(REF)
        gone(provisioner_rig, REF)
        assert provisioner_rig.get("Service", "demo") is not None

    def test_workload_of_another_owner_is_kept(self, provisioner_rig: KubeRig) -> None:
        settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        other = dataclasses.replace(provisioner_rig.spec("demo", 1), owner="endpoint/other")
        error = refusal(lambda: provisioner_rig.provisioner.apply(other))
        assert error.reason == "NameTaken"
        assert "for endpoint/demo" in error.message

    def test_missing_permission_names_the_role_to_grant(self, provisioner_rig: KubeRig) -> None:
        stranger = provisioner_rig.another("person-1")
        for action in (
            lambda: stranger.observe(REF),
            lambda: stranger.apply(provisioner_rig.spec("demo", 1)),
            lambda: stranger.delete(REF),
            lambda: stranger.logs(REF),
        ):
            error = refusal(action)
            assert (error.reason, type(error)) == ("ClusterRefused", PermanentError)
            assert "resources [" in error.message
            assert provisioner_rig.namespace in error.message

    def test_quota_error_is_temporary_and_named(self, provisioner_rig: KubeRig) -> None:
        hard = {"spec": {"hard": {"count/deployments.apps": "0"}}, "metadata": {"name": "team"}}
        provisioner_rig.cluster.api.create("ResourceQuota", provisioner_rig.namespace, hard)

        def refused() -> ProvisionError | None:
            try:
                provisioner_rig.provisioner.apply(provisioner_rig.spec("demo", 1))
            except TemporaryError as error:
                return error
            return None

        error = until(refused, what="the quota is counted")
        assert error.reason == "QuotaExceeded"
        assert "limited: count/deployments.apps=0" in error.message
        provisioner_rig.cluster.api.delete("ResourceQuota", provisioner_rig.namespace, "team")
        settle(provisioner_rig, provisioner_rig.spec("demo", 1))

    def test_pod_quota_is_reported_during_the_rollout(self, provisioner_rig: KubeRig) -> None:
        hard = {"spec": {"hard": {"pods": "1"}}, "metadata": {"name": "team"}}
        provisioner_rig.cluster.api.create("ResourceQuota", provisioner_rig.namespace, hard)
        provisioner_rig.provisioner.apply(provisioner_rig.spec("demo", 2))

        def reported() -> Observation | None:
            seen = provisioner_rig.provisioner.observe(REF)
            return seen if seen.parts[0].reason == "QuotaExceeded" else None

        seen = until(reported, what="the rollout says why")
        assert seen.parts[0].ready is False
        assert "exceeded quota" in seen.message

    def test_missing_namespace(self, provisioner_rig: KubeRig) -> None:
        lost = KubernetesProvisioner(provisioner_rig.access(), "nowhere", CAPABILITIES)
        assert not lost.observe(REF).exists
        assert (
            refusal(lambda: lost.apply(provisioner_rig.spec("demo", 1))).reason
            == "NamespaceMissing"
        )

    def test_object_rejected_by_the_cluster(self, provisioner_rig: KubeRig) -> None:
        spec = provisioner_rig.podded(
            provisioner_rig.spec("demo", 1), volumes_raw=({"name": "x", "emptyDirr": {}},)
        )
        assert refusal(lambda: provisioner_rig.provisioner.apply(spec)).reason == "RefusedByCluster"


class TestReasons:
    @pytest.mark.parametrize(
        ("behaviour", "state", "reason"),
        [
            ("pull-error", ReplicaState.STARTING, "ImagePullBackOff"),
            ("config-error", ReplicaState.STARTING, "CreateContainerConfigError"),
            ("crash-loop", ReplicaState.BACKOFF, "CrashLoopBackOff"),
            ("oom-killed", ReplicaState.BACKOFF, "OOMKilled"),
        ],
    )
    def test_reason_of_an_unready_pod(
        self, provisioner_rig: KubeRig, behaviour: str, state: ReplicaState, reason: str
    ) -> None:
        provisioner_rig.cluster.rule(provisioner_rig.namespace, behaviour=behaviour)
        provisioner_rig.provisioner.apply(provisioner_rig.spec("demo", 1))

        def reported() -> Observation | None:
            seen = provisioner_rig.provisioner.observe(REF)
            reported = [(replica.state, replica.reason) for replica in seen.replicas]
            return seen if reported == [(state, reason)] else None

        seen = until(reported, what=f"{behaviour} told as {reason}")
        assert seen.replicas[0].node
        assert seen.replicas[0].containers == ("worker",)
        assert reason in seen.message

    def test_crash_cause_is_read_from_the_log_without_a_termination_message(
        self, provisioner_rig: KubeRig
    ) -> None:
        log = (CRASHES / "kv_memory_too_small_core.txt").read_text(encoding="utf-8")
        provisioner_rig.cluster.rule(
            provisioner_rig.namespace, behaviour="crash-loop", log=tuple(log.splitlines())
        )
        provisioner_rig.provisioner.apply(provisioner_rig.spec("demo", 1))

        def reported() -> Observation | None:
            seen = provisioner_rig.provisioner.observe(REF)
            text = [replica.message for replica in seen.replicas]
            return seen if "No available memory for the cache blocks" in "".join(text) else None

        seen = until(reported, what="vLLM's own error")
        name = seen.replicas[0].name
        assert "exit code 1" in seen.replicas[0].message
        whole = provisioner_rig.provisioner.logs(REF, 400)[name]
        assert "EngineCore failed to start." in whole, "the whole text stays readable"

    def test_unschedulable_pod_has_the_scheduler_message(self, provisioner_rig: KubeRig) -> None:
        spec = dataclasses.replace(provisioner_rig.spec("demo", 1), gpus=999)
        provisioner_rig.provisioner.apply(spec)

        def reported() -> Observation | None:
            seen = provisioner_rig.provisioner.observe(REF)
            return seen if seen.replicas and seen.replicas[0].reason == "Unschedulable" else None

        seen = until(reported, what="unschedulable")
        assert "Insufficient nvidia.com/gpu" in seen.replicas[0].message

        def of_pod() -> bool:
            events = provisioner_rig.provisioner.observe(REF).events
            return any(event.subject.startswith("Pod/demo-") for event in events)

        until(of_pod, what="an event of the pod")
        assert provisioner_rig.provisioner.events(REF)


class TestInterruption:
    def test_interrupted_apply_is_continued(self, provisioner_rig: KubeRig) -> None:
        spec = rich(provisioner_rig)
        for fatal in range(1, 60):
            dying = KubernetesProvisioner(
                Dying(provisioner_rig.access(), fatal), provisioner_rig.namespace, CAPABILITIES
            )
            try:
                dying.apply(spec)
            except Killed:
                seen = provisioner_rig.another().observe(REF)
                assert seen.exists == (fatal > 2), fatal  # from the anchor on
                continue
            break
        assert fatal > 15
        provisioner_rig.another().apply(spec)
        assert provisioner_rig.provisioner.drift(REF) == ()
        assert "Deployment/demo" in everything(provisioner_rig)

    def test_unwanted_objects_are_removed_after_an_interrupted_apply(
        self, provisioner_rig: KubeRig
    ) -> None:
        plain = provisioner_rig.spec("demo", 2)
        provisioner_rig.provisioner.apply(rich(provisioner_rig))
        for fatal in range(1, 60):
            dying = KubernetesProvisioner(
                Dying(provisioner_rig.access(), fatal), provisioner_rig.namespace, CAPABILITIES
            )
            try:
                dying.apply(plain)
            except Killed:
                continue
            break
        kinds = {name.partition("/")[0] for name in everything(provisioner_rig)}
        assert not kinds & {"HTTPRoute", "ScaledObject", "NetworkPolicy", "PodMonitor"}
        assert "Deployment" in kinds

    def test_interrupted_delete_is_continued(self, provisioner_rig: KubeRig) -> None:
        settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        for fatal in range(1, 60):
            dying = KubernetesProvisioner(
                Dying(provisioner_rig.access(), fatal), provisioner_rig.namespace, CAPABILITIES
            )
            try:
                dying.delete(REF)
                if not dying.observe(REF).exists:
                    break
            except Killed:
                continue
        gone(provisioner_rig, REF)
        assert everything(provisioner_rig) == {}

    def test_two_concurrent_applies_make_one_workload(self, provisioner_rig: KubeRig) -> None:
        spec = rich(provisioner_rig)
        errors: list[ProvisionError] = []

        def work() -> None:
            own = provisioner_rig.another()
            for _ in range(3):
                try:
                    own.apply(spec)
                except ProvisionError as error:
                    errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(isinstance(error, TemporaryError) for error in errors), errors
        provisioner_rig.provisioner.apply(spec)
        assert provisioner_rig.provisioner.drift(REF) == ()
        assert (
            len([name for name in everything(provisioner_rig) if name.startswith("Deployment/")])
            == 1
        )


class TestRemoval:
    def test_delete_leaves_no_object(self, provisioner_rig: KubeRig) -> None:
        provisioner_rig.provisioner.apply(rich(provisioner_rig))
        until(lambda: provisioner_rig.provisioner.observe(REF).ready(), what="ready")
        provisioner_rig.provisioner.delete(REF)
        error = refusal(lambda: provisioner_rig.provisioner.apply(rich(provisioner_rig)))
        assert error.reason == "StillStopping"
        gone(provisioner_rig, REF)
        assert everything(provisioner_rig) == {}

    def test_cluster_scoped_volumes_are_removed_with_their_namespace(
        self, provisioner_rig: KubeRig
    ) -> None:
        other = KubeRig(provisioner_rig.cluster)
        for one in (provisioner_rig, other):
            share = one.podded(one.spec("demo", 1), volumes=(BUCKET,))
            own = KubernetesProvisioner(one.access(), one.namespace, CAPABILITIES | {"s3-csi"})
            own.apply(share)
        own = KubernetesProvisioner(
            provisioner_rig.access(), provisioner_rig.namespace, CAPABILITIES | {"s3-csi"}
        )
        own.delete(REF)

        def freed() -> bool:
            # No driver runs here to release a claimed volume.
            for body in provisioner_rig.cluster.api.list("PersistentVolume", "", LABEL):
                ending = "deletionTimestamp" in body["metadata"]
                if ending and body["spec"]["claimRef"]["namespace"] == provisioner_rig.namespace:
                    patch = {"metadata": {"finalizers": None}}
                    provisioner_rig.cluster.api.merge(
                        "PersistentVolume", "", body["metadata"]["name"], patch
                    )
            return not own.observe(REF).exists

        until(freed, what="gone")
        left = [
            body["spec"]["claimRef"]["namespace"]
            for body in provisioner_rig.cluster.api.list("PersistentVolume", "", LABEL)
            if body["spec"]["claimRef"]["namespace"] in (provisioner_rig.namespace, other.namespace)
        ]
        assert left == [other.namespace]
        api = provisioner_rig.cluster.api
        for body in api.list("PersistentVolume", "", LABEL):
            name, patch = body["metadata"]["name"], {"metadata": {"finalizers": None}}
            api.merge("PersistentVolume", "", name, patch)
            api.delete("PersistentVolume", "", name)

    def test_objects_without_an_anchor_are_found_and_removed(
        self, provisioner_rig: KubeRig
    ) -> None:
        provisioner_rig.provisioner.apply(rich(provisioner_rig))
        until(lambda: provisioner_rig.provisioner.observe(REF).ready(), what="ready")
        api = provisioner_rig.cluster.api
        api.delete("ConfigMap", provisioner_rig.namespace, "demo", propagationPolicy="Orphan")
        until(lambda: provisioner_rig.get("ConfigMap", "demo") is None, what="anchor gone")
        seen = provisioner_rig.provisioner.observe(REF)
        assert seen.exists
        assert "Left:" in seen.message
        assert {replica.state for replica in seen.replicas} == {ReplicaState.STOPPING}

        def removed() -> bool:
            provisioner_rig.provisioner.delete(REF)
            return not provisioner_rig.provisioner.observe(REF).exists

        until(removed, what="all gone")
        assert everything(provisioner_rig) == {}

    def test_objects_without_an_anchor_can_be_applied_again(self, provisioner_rig: KubeRig) -> None:
        spec = provisioner_rig.spec("demo", 1)
        before = settle(provisioner_rig, spec)
        provisioner_rig.cluster.api.delete(
            "ConfigMap", provisioner_rig.namespace, "demo", propagationPolicy="Orphan"
        )
        until(lambda: provisioner_rig.get("ConfigMap", "demo") is None, what="anchor gone")
        assert settle(provisioner_rig, spec).replicas == before.replicas


class Killed(BaseException):
    """Simulated kill, caught by no handler."""


class Dying:
    """Access of a process that is killed at its n-th request."""

    def __init__(self, access: ClusterAccess, fatal: int) -> None:
        self.real, self.left = access.api_client(), fatal
        self.deadline_s = access.deadline_s
        self.configuration = self.real.configuration
        self.param_serialize = self.real.param_serialize

    def api_client(self) -> Dying:
        return self

    def call_api(self, *args: Any, **more: Any) -> Any:
        self.left -= 1
        if self.left <= 0:
            raise Killed
        return self.real.call_api(*args, **more)
