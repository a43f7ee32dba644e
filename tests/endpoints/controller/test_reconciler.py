"""`kubectl apply` creates, changes and deletes endpoints; objects report their status."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from console.accounts.models import User
from console.provisioners.kubernetes.api.client import KubernetesClient
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.controller import actions as follows
from endpoints.controller import followed_object, reconciler
from endpoints.controller.models import Follow, Owned
from endpoints.keys import actions as keys_actions
from endpoints.manifests import schemas
from endpoints.models import Endpoint
from endpoints.refusals import ConflictError
from tests.endpoints.controller.conftest import KIND, Followed, remove_definition
from tests.support.kube.client import Refused
from tests.support.kube.cluster import Cluster
from tests.support.people import PASSWORD

pytestmark = pytest.mark.django_db
FINALIZER = "emberline.dev/endpoint"


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice", password=PASSWORD, role="operator")


def test_definition_is_installed_and_an_object_becomes_an_endpoint(followed: Followed) -> None:
    assert followed.follow().message == "0 objects."
    definition = followed.cluster.api.get("CustomResourceDefinition", "", schemas.NAME)
    assert {one["name"] for one in definition["spec"]["versions"]} == {"v1", "v1alpha1"}
    followed.apply()
    assert followed.follow().message == "1 object."
    spec = followed.endpoint().parsed
    assert (spec.placement.cluster, spec.placement.namespace) == ("west", followed.namespace)
    found = followed.get()
    assert found["metadata"]["finalizers"] == [FINALIZER]
    assert found["status"]["state"] == "DeploymentPending"
    assert followed.condition("Accepted")["status"] == "True"
    assert ("Applied", "Endpoint llama: create.") in followed.events()


def test_object_status_follows_the_endpoint(ready: Followed) -> None:
    status = ready.get()["status"]
    assert status["state"] == "DeploymentComplete"
    assert (status["replicas"], status["observedGeneration"]) == (1, 1)
    assert status["url"] == ready.endpoint().status.url != ""
    assert status["selector"] == "emberline.dev/workload=llama-worker"
    assert status["deploymentStatus"]["status"]["readyReplicas"] == 1
    assert status["metricsStatus"]["modelMetrics"] == {"path": "/metrics", "port": 8000}
    assert ready.condition("Ready")["status"] == "True"


def test_unchanged_status_is_not_written(ready: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ready.get()["metadata"]["resourceVersion"]
    requests: list[str] = []
    for verb in ("merge", "apply"):
        monkeypatch.setattr(
            KubernetesClient, verb, lambda *_args, **_more: requests.append("write")
        )
    ready.follow()
    ready.follow()
    assert requests == []
    assert ready.get()["metadata"]["resourceVersion"] == before
    assert ready.endpoint().generation == 1


def test_changed_object_changes_the_endpoint(ready: Followed) -> None:
    since = ready.condition("Accepted")["lastTransitionTime"]
    ready.apply(**{"spec/replicas": 2})
    ready.follow()
    assert ready.endpoint().parsed.replicas == 2
    status = ready.get()["status"]
    assert (status["state"], status["observedGeneration"]) == ("DeploymentInProgress", 2)
    ready.harness.until(ready.endpoint(), "Ready")
    ready.follow()
    assert ready.get()["status"]["replicas"] == 2
    assert ready.condition("Accepted")["lastTransitionTime"] == since
    revision = ready.endpoint().revisions.order_by("-number").first()
    assert revision is not None
    assert (revision.verb, revision.author) == ("apply", f"{ready.namespace}/llama in west")


def test_scale_subresource_scales(ready: Followed) -> None:
    """As `kubectl scale` and autoscalers do."""
    ready.cluster.api.merge(KIND, ready.namespace, "llama", {"spec": {"replicas": 3}}, sub="scale")
    ready.follow()
    assert ready.endpoint().parsed.replicas == 3


def test_changed_annotation_is_a_change(ready: Followed) -> None:
    ready.apply(**{"metadata/annotations": {"emberline.dev/cache.l1.policy": "arc"}})
    ready.follow()
    assert ready.endpoint().parsed.cache.l1.policy == "arc"


def test_rejected_object_has_a_reason_and_changes_nothing(ready: Followed) -> None:
    ready.apply(**{"spec/kvCacheSpec": {"enableL2Cache": True}})
    assert ready.follow().message == "1 object, 1 rejected."
    assert ready.endpoint().generation == 1
    accepted = ready.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "SpecRefused")
    assert "spec.kvCacheSpec.l2CacheSpec.l2CacheBackend" in accepted["message"]
    assert ready.get()["status"]["state"] == "DeploymentFailed"
    assert ready.condition("Ready")["status"] == "True", "what was applied goes on serving"
    assert "SpecRefused" in dict(ready.events())
    ready.apply(**{"spec/kvCacheSpec": {}})
    ready.follow()
    assert ready.condition("Accepted")["status"] == "True"


def test_object_is_limited_to_its_namespace(ready: Followed) -> None:
    """A user who may create objects there is no operator of the console."""
    for volume, grant in (
        ({"name": "root", "hostPath": {"path": "/"}}, "host"),
        ({"name": "keys", "secret": {"secretName": "theirs"}}, ""),
    ):
        ready.apply(**{"spec/kubernetes": {"volumes": [volume]}})
        ready.follow()
        accepted = ready.condition("Accepted")
        assert accepted["status"] == ("False" if grant else "True"), accepted
        if grant:
            assert "spec.kubernetes.volumes" in accepted["message"]
            assert f"needs the grant {grant}" in accepted["message"]
            assert ready.endpoint().generation == 1


def test_server_rejects_objects_that_violate_the_definition(followed: Followed) -> None:
    followed.follow()
    with pytest.raises(Refused):
        followed.apply(**{"spec/replicas": "two"})


def test_console_cannot_change_object_fields(ready: Followed, alice: User) -> None:
    for change in (
        lambda: actions.scale(alice, "llama", 3),
        lambda: actions.scale(SYSTEM, "llama", 3),
        lambda: actions.pause(alice, "llama"),
        lambda: actions.patch(alice, "llama", {"replicas": 3}),
        lambda: actions.delete(alice, "llama"),
    ):
        with pytest.raises(ConflictError) as caught:
            change()
        assert caught.value.code == "managed"
        assert f"{ready.namespace}/llama in west" in caught.value.message
    assert ready.endpoint().generation == 1
    keys_actions.create(alice, "llama", {"name": "mine"})


def test_automatic_rollback_is_reported_and_not_repeated(ready: Followed) -> None:
    ready.apply(**{"spec/worker/image": "vllm/vllm-openai:broken"})
    ready.follow()
    changed = ready.endpoint()
    actions.roll_back_failed("llama", 1, expected_generation=changed.generation)
    ready.follow()
    ready.follow()
    assert ready.endpoint().parsed.pod.image == "vllm/vllm-openai:v0.10.0"
    assert ready.endpoint().generation == 3
    synced = ready.condition("Synced")
    assert (synced["status"], synced["reason"]) == ("False", "RolledBack")
    ready.apply(**{"spec/worker/image": "vllm/vllm-openai:v0.10.1"})
    ready.follow()
    assert ready.endpoint().parsed.pod.image == "vllm/vllm-openai:v0.10.1"
    assert ready.condition("Synced")["status"] == "True"


def test_object_is_removed_after_its_endpoint(ready: Followed) -> None:
    ready.delete()
    ready.follow()
    assert ready.endpoint().deleting and ready.there()
    assert ready.get()["status"]["state"] == "DeletionInProgress"
    ready.harness.gone(ready.endpoint())
    ready.follow()
    assert not ready.there()
    assert not Endpoint.objects.exists() and not Owned.objects.exists()


def test_rejected_object_is_removed_at_once(followed: Followed) -> None:
    followed.follow()
    followed.apply(**{"spec/kvCacheSpec": {"enableL2Cache": True}})
    followed.follow()
    followed.delete()
    followed.follow()
    assert not followed.there() and not Endpoint.objects.exists()


def test_endpoint_survives_a_finalizer_removed_by_hand(ready: Followed) -> None:
    ready.cluster.api.merge(KIND, ready.namespace, "llama", {"metadata": {"finalizers": None}})
    ready.delete()
    assert not ready.there()
    ready.follow()
    assert not ready.endpoint().deleting
    actions.scale(SYSTEM, "llama", 2)


def test_empty_list_response_deletes_nothing(ready: Followed) -> None:
    """The definition away is no word about its objects."""
    remove_definition(ready.cluster.api)
    reconciler.follow(str(ready.row.pk))
    assert Owned.objects.exists(), "nobody has said yet which objects there are"
    ready.follow()
    assert not ready.endpoint().deleting


def test_equal_names_of_two_namespaces_get_distinct_endpoints(ready: Followed) -> None:
    other = ready.cluster.namespace()
    second = Followed(ready.cluster, other, follows.follow(SYSTEM, "west", other))
    second.apply()
    second.follow()
    assert set(Endpoint.objects.values_list("name", flat=True)) == {"llama", f"llama-{other}"}
    second.follow()
    assert Endpoint.objects.count() == 2
    assert second.get()["status"]["selector"] == f"emberline.dev/workload=llama-{other}-worker"
    second.delete()
    second.follow()
    second.harness.gone(Endpoint.objects.get(name=f"llama-{other}"))
    second.follow()
    assert not second.there() and ready.there()


def test_console_endpoint_is_adopted_only_on_request(followed: Followed) -> None:
    followed.follow()
    data = {
        "name": "llama",
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "worker_args": ["--max-model-len=4096"],
        "placement": {"cluster": "west", "namespace": followed.namespace},
    }
    actions.create(SYSTEM, data)
    followed.apply()
    followed.follow()
    accepted = followed.condition("Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "NameTaken")
    assert "emberline.dev/adopt" in accepted["message"]
    assert followed.endpoint().generation == 1
    actions.scale(SYSTEM, "llama", 2)
    followed.apply(**{"metadata/annotations": {"emberline.dev/adopt": "true"}})
    followed.follow()
    assert followed.condition("Accepted")["status"] == "True"
    assert followed.endpoint().parsed.pod.image == "vllm/vllm-openai:v0.10.0"
    with pytest.raises(ConflictError):
        actions.scale(SYSTEM, "llama", 3)


def test_endpoints_survive_when_their_namespace_is_released(ready: Followed) -> None:
    follows.unfollow(SYSTEM, str(ready.row.pk))
    reconciler.follow(str(ready.row.pk))
    assert not Follow.objects.exists() and not Owned.objects.exists()
    assert "finalizers" not in ready.get()["metadata"]
    assert not ready.endpoint().deleting
    actions.scale(SYSTEM, "llama", 2)


def test_foreign_definition_is_left_unchanged(followed: Followed) -> None:
    followed.follow()
    api = followed.cluster.api
    labels = {"app.kubernetes.io/managed-by": "Helm"}
    api.merge("CustomResourceDefinition", "", schemas.NAME, {"metadata": {"labels": labels}})
    try:
        status = followed.follow()
        assert (status.phase, status.reason) == ("Failed", "ForeignDefinition")
        found = api.get("CustomResourceDefinition", "", schemas.NAME)
        assert found["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        Follow.objects.update(foreign=True)
        followed.apply()
        assert followed.follow().reason == "Following"
        before = followed.get()["metadata"]["resourceVersion"]
        followed.follow()
        assert followed.get()["metadata"]["resourceVersion"] == before
    finally:
        remove_definition(api)


def test_passes_are_exclusive(ready: Followed) -> None:
    from console.claims import take_claim
    from endpoints.controller.models import FollowStatus

    held = take_claim(FollowStatus, str(ready.row.pk))
    assert held is not None
    ready.apply(**{"spec/replicas": 4})
    reconciler.follow(str(ready.row.pk))
    assert ready.endpoint().parsed.replicas == 1
    held.release(0)
    ready.follow()
    assert ready.endpoint().parsed.replicas == 4


def test_interrupted_pass_is_repeated(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before and after every call that changes the cluster or an endpoint."""
    followed.follow()
    followed.apply()
    for place, name in (
        (KubernetesClient, "merge"),
        (KubernetesClient, "apply"),
        (actions, "create"),
    ):
        real = getattr(place, name)
        for after in (False, True):

            def dies(*args: Any, real: Any = real, after: bool = after, **more: Any) -> Any:
                if after:
                    real(*args, **more)
                raise KeyboardInterrupt

            monkeypatch.setattr(place, name, dies)
            with pytest.raises(KeyboardInterrupt):
                reconciler.follow(str(followed.row.pk))
            monkeypatch.setattr(place, name, real)
            _expire(followed)
            Owned.objects.update(fingerprint="")
            Endpoint.objects.all().delete()
            monkeypatch.setattr(place, name, real)
    assert followed.follow().reason == "Following"
    assert followed.endpoint().parsed.replicas == 1
    assert Endpoint.objects.count() == 1


def _expire(followed: Followed) -> None:
    """The claim of a pass that was killed runs out."""
    from endpoints.controller.models import FollowStatus

    FollowStatus.objects.filter(pk=followed.row.pk).update(claim_until=None, claim_token="")


def test_unreachable_cluster_is_reported_and_deletes_nothing(
    cluster: Cluster, ready: Followed
) -> None:
    if cluster.kind != "fake":
        pytest.skip("only the fake can be stopped within a test")
    cluster.plane.stop_api()
    try:
        status = ready.follow()
        assert (status.phase, status.reason) == ("Failed", "ClusterUnreachable")
        assert not ready.endpoint().deleting
    finally:
        cluster.plane.start_api()
    assert ready.follow().reason == "Following"


def test_refused_object_is_applied_once_what_it_lacked_is_there(
    followed: Followed, settings: Any
) -> None:
    """Nobody touches the object again; while it is refused, one event says so."""
    complete = settings.EMBERLINE
    settings.EMBERLINE = replace(complete, engine_image="")
    followed.follow()
    followed.apply()
    followed.follow()
    assert followed.condition("Accepted")["status"] == "False"
    age_judgement()
    followed.follow()
    refusals = [text for reason, text in followed.events() if reason == "SpecRefused"]
    assert len(refusals) == 1 and "EMBERLINE_ENGINE_IMAGE" in refusals[0]
    settings.EMBERLINE = complete
    followed.follow()
    assert not Endpoint.objects.exists(), "not in every pass"
    age_judgement()
    followed.follow()
    assert followed.condition("Accepted")["status"] == "True"
    assert followed.endpoint().generation == 1


def test_refused_object_judged_by_a_clock_that_was_ahead_is_judged_again(
    followed: Followed, settings: Any
) -> None:
    complete = settings.EMBERLINE
    settings.EMBERLINE = replace(complete, engine_image="")
    followed.follow()
    followed.apply()
    followed.follow()
    settings.EMBERLINE = complete
    Owned.objects.update(judged_at=timezone.now() + timedelta(days=1))
    followed.follow()
    assert followed.condition("Accepted")["status"] == "True"


def test_notes_reach_an_event_and_the_synced_condition(followed: Followed) -> None:
    followed.follow()
    followed.apply(
        **{
            "spec/worker/image": "registry.example/my-server:1",
            "spec/worker/args": ["--max-model-len", "4096"],
            "spec/intelligentRoutingSpec": {"enabled": True},
        }
    )
    followed.follow()
    text = "The image does not look like vLLM, which alone has a cache to keep: cache and routing"
    assert any(text in note for reason, note in followed.events() if reason == "Note")
    synced = followed.condition("Synced")
    assert synced["status"] == "True"
    assert text in synced["message"]


def age_judgement() -> None:
    age = timedelta(seconds=followed_object.JUDGED_AGAIN_S)
    Owned.objects.update(judged_at=timezone.now() - age)
