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
def rig(cluster: Cluster) -> KubeRig:
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
        rules=({"name": "demo", "rules": [{"alert": "Down", "expr": "up == 0"}]},),
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
    def test_what_was_just_applied_did_not_drift(self, rig: KubeRig) -> None:
        settle(rig, rig.spec("demo", 1))
        assert rig.provisioner.drift(REF) == ()
        rig.provisioner.apply(rich(rig))
        assert rig.provisioner.drift(REF) == ()
        assert "ScaledObject/demo" in everything(rig)

    def test_a_foreign_edit_is_named_and_healed(self, rig: KubeRig) -> None:
        spec = rig.spec("demo", 2)
        settle(rig, spec)
        edit(rig, "Deployment", "demo", {"spec": {"replicas": 3}})
        edit(rig, "Service", "demo", {"metadata": {"labels": {"emberline.dev/owner": "me"}}})
        (scaled, relabelled) = sorted(rig.provisioner.drift(REF), key=lambda one: one.key)
        assert (scaled.key, scaled.wanted, scaled.found) == (
            "Deployment/demo.spec.replicas",
            2,
            3,
        )
        assert scaled.manager == relabelled.manager == "kubectl-edit"
        assert scaled.since > 1.7e9
        assert relabelled.path == ".metadata.labels.emberline.dev/owner"
        fresh = rig.another()
        assert {one.key for one in fresh.observe(REF).drift} == {scaled.key, relabelled.key}
        fresh.apply(spec)  # observed, and left unchanged
        assert rig.get("Deployment", "demo")["spec"]["replicas"] == 3
        fresh.heal(REF)
        settle(rig, spec)
        assert rig.provisioner.drift(REF) == ()
        assert fresh.observe(REF).drift == ()

    def test_a_conflict_is_explained_and_everything_else_is_applied(self, rig: KubeRig) -> None:
        settle(rig, rig.spec("demo", 1))
        edit(rig, "Deployment", "demo", {"spec": {"minReadySeconds": 1, "replicas": 3}})
        other = dataclasses.replace(
            rig.spec("demo", 2), files=(FileSpec("conf/worker.json", "new"),)
        )
        error = refusal(lambda: rig.provisioner.apply(other))
        assert isinstance(error, PermanentError)
        assert error.reason == "FieldConflict"
        assert ".spec.replicas (set by kubectl-edit)" in error.message
        assert ".spec.minReadySeconds (set by kubectl-edit)" in error.message
        assert "new" in rig.get("ConfigMap", "demo-files")["data"].values()
        assert refusal(lambda: rig.provisioner.apply(other)).reason == "FieldConflict"
        drifted = rig.provisioner.observe(REF).drift  # drift offered for adoption
        keys = ("Deployment/demo.spec.minReadySeconds", "Deployment/demo.spec.replicas")
        assert tuple(sorted(one.key for one in drifted)) == keys
        assert {one.manager for one in drifted} == {"kubectl-edit"}
        rig.provisioner.adopt(REF, keys[:1])
        error = refusal(lambda: rig.provisioner.apply(other))
        assert "minReadySeconds" not in error.message
        rig.provisioner.heal(REF)
        assert len(settle(rig, other).replicas) == 2
        assert rig.get("Deployment", "demo")["spec"]["minReadySeconds"] == 1

    def test_what_is_adopted_is_theirs_until_they_change_it_again(self, rig: KubeRig) -> None:
        spec = rig.spec("demo", 1)
        settle(rig, spec)
        edit(rig, "Deployment", "demo", {"spec": {"replicas": 2}})
        (drifted,) = rig.provisioner.drift(REF)
        rig.provisioner.adopt(REF, (drifted.key,))
        assert rig.provisioner.drift(REF) == ()  # immediately, not after the next apply
        rig.provisioner.apply(spec)
        assert rig.provisioner.drift(REF) == ()
        assert rig.get("Deployment", "demo")["spec"]["replicas"] == 2
        changed = rig.spec("demo", 1, revision="2")
        rig.provisioner.apply(changed)
        assert rig.get("Deployment", "demo")["spec"]["replicas"] == 2
        edit(rig, "Deployment", "demo", {"spec": {"replicas": 4}})
        assert rig.provisioner.drift(REF) == ()

    def test_what_somebody_deleted_is_made_again(self, rig: KubeRig) -> None:
        spec = rig.spec("demo", 1)
        settle(rig, spec)
        rig.cluster.api.delete("Deployment", rig.namespace, "demo")
        seen = rig.provisioner.observe(REF)
        assert "was deleted outside Emberline" in seen.message
        assert settle(rig, spec).replicas
        rig.cluster.api.delete("Service", rig.namespace, "demo-pods")
        (missing,) = rig.provisioner.drift(REF)
        assert missing.key == "Service/demo-pods"
        rig.another().apply(spec)
        assert rig.get("Service", "demo-pods") is not None


class TestChanges:
    def test_objects_which_are_no_longer_wanted_go(self, rig: KubeRig) -> None:
        rig.provisioner.apply(rich(rig))
        more = set(everything(rig))
        assert {"HTTPRoute/demo", "ScaledObject/demo", "PodDisruptionBudget/demo"} <= more
        settle(rig, rig.spec("demo", 1))
        assert not any(name.startswith("HTTPRoute/") for name in everything(rig))
        assert "ScaledObject/demo" not in everything(rig)

    def test_an_autoscaler_takes_over_from_the_present_number_and_hands_it_back(
        self, rig: KubeRig
    ) -> None:
        settle(rig, rig.spec("demo", 3))
        rig.provisioner.apply(rich(rig))
        assert rig.get("Deployment", "demo")["spec"]["replicas"] == 3
        assert rig.provisioner.observe(REF).wanted == 3
        scale = {"spec": {"replicas": 4}}
        path = rig.cluster.api.path("Deployment", rig.namespace, "demo")
        media = "application/merge-patch+json"
        who = "kube-controller-manager"
        rig.cluster.api.ask("PATCH", path, scale, media, fieldManager=who)
        assert rig.provisioner.drift(REF) == ()
        assert rig.provisioner.observe(REF).wanted == 4
        paused = dataclasses.replace(rich(rig), replicas=0)
        assert settle(rig, paused).replicas == ()
        rig.provisioner.apply(rich(rig))
        assert rig.get("Deployment", "demo")["spec"]["replicas"] == 2
        assert settle(rig, rig.spec("demo", 1)).wanted is None

    def test_pods_are_told_of_files_that_changed(self, rig: KubeRig) -> None:
        spec = dataclasses.replace(rig.spec("demo", 1), live_files=(FileSpec("t.json", "1"),))
        settle(rig, spec)
        changed = dataclasses.replace(spec, live_files=(FileSpec("t.json", "2"),))
        rig.provisioner.apply(changed)
        (pod,) = rig.cluster.pods(rig.namespace, LABEL)
        before = pod["metadata"]["annotations"]["emberline.dev/files"]
        rig.provisioner.apply(dataclasses.replace(spec, live_files=(FileSpec("t.json", "3"),)))
        (pod,) = rig.cluster.pods(rig.namespace, LABEL)
        assert pod["metadata"]["annotations"]["emberline.dev/files"] != before

    def test_a_secret_that_changes_alone_restarts_nothing(
        self, rig: KubeRig, tmp_path: Path
    ) -> None:
        file = tmp_path / "key"
        file.write_text("first\n")
        spec = dataclasses.replace(rig.spec("demo", 1), secret_env={"API_KEY": str(file)})
        before = settle(rig, spec)
        assert rig.get("Secret", "demo-env")["data"] == {"API_KEY": "Zmlyc3Q="}
        file.write_text("second\n")
        rig.provisioner.apply(spec)
        assert rig.get("Secret", "demo-env")["data"] == {"API_KEY": "c2Vjb25k"}
        assert settle(rig, spec).replicas == before.replicas
        assert "first" not in str(rig.get("ConfigMap", "demo"))
        assert "Zmlyc3Q" not in str(rig.get("ConfigMap", "demo"))
        file.unlink()
        assert refusal(lambda: rig.provisioner.apply(spec)).reason == "SecretMissing"


class TestRefusals:
    def test_what_is_somebody_elses_is_not_written_over(self, rig: KubeRig) -> None:
        api, space = rig.cluster.api, rig.namespace
        api.create("ConfigMap", space, {"metadata": {"name": "demo"}, "data": {"a": "b"}})
        error = refusal(lambda: rig.provisioner.apply(rig.spec("demo", 1)))
        assert (error.reason, type(error)) == ("NameTaken", PermanentError)
        assert not rig.provisioner.observe(REF).exists
        rig.provisioner.delete(REF)
        assert rig.get("ConfigMap", "demo")["data"] == {"a": "b"}
        api.delete("ConfigMap", space, "demo")
        ports = {"ports": [{"port": 80}]}
        api.create("Service", space, {"metadata": {"name": "demo"}, "spec": ports})
        assert refusal(lambda: rig.provisioner.apply(rig.spec("demo", 1))).reason == "NameTaken"
        assert rig.get("Service", "demo")["spec"]["ports"][0]["port"] == 80
        rig.provisioner.delete(REF)
        gone(rig, REF)
        assert rig.get("Service", "demo") is not None

    def test_another_owner_keeps_its_workload(self, rig: KubeRig) -> None:
        settle(rig, rig.spec("demo", 1))
        other = dataclasses.replace(rig.spec("demo", 1), owner="endpoint/other")
        error = refusal(lambda: rig.provisioner.apply(other))
        assert error.reason == "NameTaken"
        assert "for endpoint/demo" in error.message

    def test_who_may_nothing_is_told_which_role_to_grant(self, rig: KubeRig) -> None:
        stranger = rig.another("person-1")
        for action in (
            lambda: stranger.observe(REF),
            lambda: stranger.apply(rig.spec("demo", 1)),
            lambda: stranger.delete(REF),
            lambda: stranger.logs(REF),
        ):
            error = refusal(action)
            assert (error.reason, type(error)) == ("ClusterRefused", PermanentError)
            assert "resources [" in error.message
            assert rig.namespace in error.message

    def test_a_quota_is_temporary_and_named(self, rig: KubeRig) -> None:
        hard = {"spec": {"hard": {"count/deployments.apps": "0"}}, "metadata": {"name": "team"}}
        rig.cluster.api.create("ResourceQuota", rig.namespace, hard)

        def refused() -> ProvisionError | None:
            try:
                rig.provisioner.apply(rig.spec("demo", 1))
            except TemporaryError as error:
                return error
            return None

        error = until(refused, what="the quota is counted")
        assert error.reason == "QuotaExceeded"
        assert "limited: count/deployments.apps=0" in error.message
        rig.cluster.api.delete("ResourceQuota", rig.namespace, "team")
        settle(rig, rig.spec("demo", 1))

    def test_a_quota_of_pods_is_seen_at_the_rollout(self, rig: KubeRig) -> None:
        hard = {"spec": {"hard": {"pods": "1"}}, "metadata": {"name": "team"}}
        rig.cluster.api.create("ResourceQuota", rig.namespace, hard)
        rig.provisioner.apply(rig.spec("demo", 2))

        def told() -> Observation | None:
            seen = rig.provisioner.observe(REF)
            return seen if seen.parts[0].reason == "QuotaExceeded" else None

        seen = until(told, what="the rollout says why")
        assert seen.parts[0].ready is False
        assert "exceeded quota" in seen.message

    def test_a_namespace_that_is_not_there(self, rig: KubeRig) -> None:
        lost = KubernetesProvisioner(rig.access(), "nowhere", CAPABILITIES)
        assert not lost.observe(REF).exists
        assert refusal(lambda: lost.apply(rig.spec("demo", 1))).reason == "NamespaceMissing"

    def test_what_the_cluster_finds_invalid(self, rig: KubeRig) -> None:
        spec = rig.podded(rig.spec("demo", 1), volumes_raw=({"name": "x", "emptyDirr": {}},))
        assert refusal(lambda: rig.provisioner.apply(spec)).reason == "RefusedByCluster"


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
    def test_why_a_pod_is_not_ready(
        self, rig: KubeRig, behaviour: str, state: ReplicaState, reason: str
    ) -> None:
        rig.cluster.rule(rig.namespace, behaviour=behaviour)
        rig.provisioner.apply(rig.spec("demo", 1))

        def told() -> Observation | None:
            seen = rig.provisioner.observe(REF)
            told = [(replica.state, replica.reason) for replica in seen.replicas]
            return seen if told == [(state, reason)] else None

        seen = until(told, what=f"{behaviour} told as {reason}")
        assert seen.replicas[0].node
        assert seen.replicas[0].containers == ("worker",)
        assert reason in seen.message

    def test_the_cause_of_a_crash_is_found_where_the_termination_message_lacks_it(
        self, rig: KubeRig
    ) -> None:
        log = (CRASHES / "kv_memory_too_small_core.txt").read_text(encoding="utf-8")
        rig.cluster.rule(rig.namespace, behaviour="crash-loop", log=tuple(log.splitlines()))
        rig.provisioner.apply(rig.spec("demo", 1))

        def told() -> Observation | None:
            seen = rig.provisioner.observe(REF)
            said = [replica.message for replica in seen.replicas]
            return seen if "No available memory for the cache blocks" in "".join(said) else None

        seen = until(told, what="vLLM's own error")
        name = seen.replicas[0].name
        assert "exit code 1" in seen.replicas[0].message
        whole = rig.provisioner.logs(REF, 400)[name]
        assert "EngineCore failed to start." in whole, "the whole text stays readable"

    def test_no_room_is_told_with_the_schedulers_own_words(self, rig: KubeRig) -> None:
        spec = dataclasses.replace(rig.spec("demo", 1), gpus=999)
        rig.provisioner.apply(spec)

        def told() -> Observation | None:
            seen = rig.provisioner.observe(REF)
            return seen if seen.replicas and seen.replicas[0].reason == "Unschedulable" else None

        seen = until(told, what="unschedulable")
        assert "Insufficient nvidia.com/gpu" in seen.replicas[0].message

        def of_pod() -> bool:
            events = rig.provisioner.observe(REF).events
            return any(event.subject.startswith("Pod/demo-") for event in events)

        until(of_pod, what="an event of the pod")
        assert rig.provisioner.events(REF)


class TestDying:
    def test_an_apply_that_dies_at_any_request_is_carried_on(self, rig: KubeRig) -> None:
        spec = rich(rig)
        for fatal in range(1, 60):
            dying = KubernetesProvisioner(Dying(rig.access(), fatal), rig.namespace, CAPABILITIES)
            try:
                dying.apply(spec)
            except Killed:
                seen = rig.another().observe(REF)
                assert seen.exists == (fatal > 2), fatal  # from the anchor on
                continue
            break
        assert fatal > 15
        rig.another().apply(spec)
        assert rig.provisioner.drift(REF) == ()
        assert "Deployment/demo" in everything(rig)

    def test_what_is_no_longer_wanted_goes_also_where_that_died(self, rig: KubeRig) -> None:
        plain = rig.spec("demo", 2)
        rig.provisioner.apply(rich(rig))
        for fatal in range(1, 60):
            dying = KubernetesProvisioner(Dying(rig.access(), fatal), rig.namespace, CAPABILITIES)
            try:
                dying.apply(plain)
            except Killed:
                continue
            break
        kinds = {name.partition("/")[0] for name in everything(rig)}
        assert not kinds & {"HTTPRoute", "ScaledObject", "NetworkPolicy", "PodMonitor"}
        assert "Deployment" in kinds

    def test_a_delete_that_dies_at_any_request_is_carried_on(self, rig: KubeRig) -> None:
        settle(rig, rig.spec("demo", 1))
        for fatal in range(1, 60):
            dying = KubernetesProvisioner(Dying(rig.access(), fatal), rig.namespace, CAPABILITIES)
            try:
                dying.delete(REF)
                if not dying.observe(REF).exists:
                    break
            except Killed:
                continue
        gone(rig, REF)
        assert everything(rig) == {}

    def test_two_at_once_make_one_workload(self, rig: KubeRig) -> None:
        spec = rich(rig)
        errors: list[ProvisionError] = []

        def work() -> None:
            own = rig.another()
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
        rig.provisioner.apply(spec)
        assert rig.provisioner.drift(REF) == ()
        assert len([name for name in everything(rig) if name.startswith("Deployment/")]) == 1


class TestRemoval:
    def test_nothing_at_all_is_left(self, rig: KubeRig) -> None:
        rig.provisioner.apply(rich(rig))
        until(lambda: rig.provisioner.observe(REF).ready(), what="ready")
        rig.provisioner.delete(REF)
        error = refusal(lambda: rig.provisioner.apply(rich(rig)))
        assert error.reason == "StillStopping"
        gone(rig, REF)
        assert everything(rig) == {}

    def test_volumes_of_the_whole_cluster_go_with_their_own_namespace(self, rig: KubeRig) -> None:
        other = KubeRig(rig.cluster)
        for one in (rig, other):
            share = one.podded(one.spec("demo", 1), volumes=(BUCKET,))
            own = KubernetesProvisioner(one.access(), one.namespace, CAPABILITIES | {"s3-csi"})
            own.apply(share)
        own = KubernetesProvisioner(rig.access(), rig.namespace, CAPABILITIES | {"s3-csi"})
        own.delete(REF)

        def freed() -> bool:
            # No driver runs here to release a claimed volume.
            for body in rig.cluster.api.list("PersistentVolume", "", LABEL):
                ending = "deletionTimestamp" in body["metadata"]
                if ending and body["spec"]["claimRef"]["namespace"] == rig.namespace:
                    patch = {"metadata": {"finalizers": None}}
                    rig.cluster.api.merge("PersistentVolume", "", body["metadata"]["name"], patch)
            return not own.observe(REF).exists

        until(freed, what="gone")
        left = [
            body["spec"]["claimRef"]["namespace"]
            for body in rig.cluster.api.list("PersistentVolume", "", LABEL)
            if body["spec"]["claimRef"]["namespace"] in (rig.namespace, other.namespace)
        ]
        assert left == [other.namespace]
        api = rig.cluster.api
        for body in api.list("PersistentVolume", "", LABEL):
            name, patch = body["metadata"]["name"], {"metadata": {"finalizers": None}}
            api.merge("PersistentVolume", "", name, patch)
            api.delete("PersistentVolume", "", name)

    def test_what_lost_its_anchor_is_found_and_removed(self, rig: KubeRig) -> None:
        rig.provisioner.apply(rich(rig))
        until(lambda: rig.provisioner.observe(REF).ready(), what="ready")
        api = rig.cluster.api
        api.delete("ConfigMap", rig.namespace, "demo", propagationPolicy="Orphan")
        until(lambda: rig.get("ConfigMap", "demo") is None, what="anchor gone")
        seen = rig.provisioner.observe(REF)
        assert seen.exists
        assert "Left:" in seen.message
        assert {replica.state for replica in seen.replicas} == {ReplicaState.STOPPING}

        def removed() -> bool:
            rig.provisioner.delete(REF)
            return not rig.provisioner.observe(REF).exists

        until(removed, what="all gone")
        assert everything(rig) == {}

    def test_what_lost_its_anchor_can_be_wanted_again(self, rig: KubeRig) -> None:
        spec = rig.spec("demo", 1)
        before = settle(rig, spec)
        rig.cluster.api.delete("ConfigMap", rig.namespace, "demo", propagationPolicy="Orphan")
        until(lambda: rig.get("ConfigMap", "demo") is None, what="anchor gone")
        assert settle(rig, spec).replicas == before.replicas


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
