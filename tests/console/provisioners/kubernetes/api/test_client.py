"""Requests to an API server: number, rights and failures."""

from __future__ import annotations

import dataclasses
import itertools
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml

from console.provisioners.base import (
    PermanentError,
    ProvisionError,
    Ref,
    ReplicaState,
    TemporaryError,
    WorkloadSpec,
)
from console.provisioners.kubernetes.api.access import ClusterAccess
from console.provisioners.kubernetes.discovery import rights
from console.provisioners.kubernetes.provisioner import KubernetesProvisioner
from console.provisioners.kubernetes.workload import logs
from console.provisioners.pods import Around
from tests.console.provisioners.contract import gone, settle
from tests.console.provisioners.kuberig import CAPABILITIES, KubeRig
from tests.support.kube.cluster import Cluster
from tests.support.waiting import until

REF = Ref("kubernetes", "demo")


class Counting:
    """Access that records its requests."""

    def __init__(self, access: ClusterAccess, deadline_s: float = 10.0) -> None:
        self.real = access.api_client()
        self.deadline_s = deadline_s
        self.configuration = self.real.configuration
        self.param_serialize = self.real.param_serialize
        self.requests: list[str] = []

    def api_client(self) -> Counting:
        return self

    def call_api(self, method: str, url: str, *args: Any, **more: Any) -> Any:
        self.requests.append(f"{method} {url.partition('/namespaces/')[2].partition('/')[2]}")
        return self.real.call_api(method, url, *args, **more)


def counting(rig: KubeRig, deadline_s: float = 10.0) -> tuple[KubernetesProvisioner, Counting]:
    access = Counting(rig.access(), deadline_s)
    return KubernetesProvisioner(access, rig.namespace, CAPABILITIES), access


def verbs(rig: KubeRig, spec: WorkloadSpec) -> list[Callable[[], object]]:
    own = rig.provisioner
    return [
        lambda: own.apply(spec),
        lambda: own.observe(REF),
        lambda: own.delete(REF),
        lambda: own.logs(REF),
        lambda: own.drift(REF),
        lambda: own.heal(REF),
        lambda: own.adopt(REF, ("Deployment/demo.spec.replicas",)),
        lambda: own.events(REF),
        lambda: next(own.follow(REF, "demo-x", "worker")),
    ]


@pytest.fixture
def fake(fake_cluster: Cluster) -> KubeRig:
    return KubeRig(fake_cluster)


@pytest.fixture
def provisioner_rig(cluster: Cluster) -> KubeRig:
    return KubeRig(cluster)


class TestCost:
    def test_unchanged_workload_is_observed_with_three_requests(self, fake: KubeRig) -> None:
        spec = fake.spec("demo", 2)
        settle(fake, spec)
        fake.provisioner.drift(REF)
        own, access = counting(fake)
        own.observe(REF)  # compares fields again after the cache expired
        access.requests.clear()
        own.observe(REF)
        assert [line.partition("?")[0] for line in access.requests] == [
            "GET configmaps/demo",
            "GET deployments/demo",
            "GET pods",
        ]
        # The events of a moment ago, when the pods started, are kept for two seconds.
        until(lambda: own.events(REF), what="events of the pods")
        assert own.observe(REF).events == ()  # not from the cache either
        access.requests.clear()
        own.apply(spec)
        assert access.requests == ["GET configmaps/demo"]

    def test_events_are_listed_once_for_all_starting_pods(self, fake: KubeRig) -> None:
        fake.cluster.rule(fake.namespace, behaviour="never-ready")
        own, access = counting(fake)
        refs = [own.apply(fake.spec(f"demo-{number}", 1)) for number in range(5)]
        access.requests.clear()
        for ref in refs:
            own.observe(ref)
        assert len([line for line in access.requests if line.startswith("GET events")]) == 1


class TestFaults:
    @pytest.mark.parametrize(
        ("status", "more", "reason"),
        [
            (0, {}, "ClusterUnreachable"),
            (429, {"headers": {"Retry-After": "7"}}, "ClusterBusy"),
            (500, {}, "ClusterBusy"),
            (503, {}, "ClusterBusy"),
            (401, {}, "ClusterRefused"),
        ],
    )
    def test_every_verb_reports_errors_in_product_terms(
        self, fake: KubeRig, status: int, more: dict[str, Any], reason: str
    ) -> None:
        spec = fake.spec("demo", 1)
        settle(fake, spec)
        for number, verb in enumerate(verbs(fake, spec)):
            with fake.cluster.plane.failing("", status, **more):
                with pytest.raises(ProvisionError) as caught:
                    verb()
            assert caught.value.reason == reason, number
            if status == 429:
                assert isinstance(caught.value, TemporaryError)
                assert caught.value.delay_s == 7

    def test_returning_cluster_converges_to_the_spec(self, fake: KubeRig) -> None:
        spec = fake.spec("demo", 1)
        before = settle(fake, spec)
        fake.cluster.plane.stop_api()
        for verb in verbs(fake, spec):
            with pytest.raises(TemporaryError) as caught:
                verb()
            assert caught.value.reason == "ClusterUnreachable"
        fake.cluster.plane.start_api()
        assert settle(fake, spec).replicas == before.replicas

    def test_lost_response_after_a_write_is_harmless(self, fake: KubeRig) -> None:
        spec = fake.spec("demo", 1)
        plane: Any = fake.cluster.plane
        for number in itertools.count(1):
            with plane.failing("PATCH", done=True, times=1) as fault:
                try:
                    fake.provisioner.apply(dataclasses.replace(spec, env={"N": str(number)}))
                except TemporaryError as error:
                    assert error.reason == "ClusterUnreachable"
            assert fault.hits == 1
            if number == 3:
                break
        settle(fake, spec)
        before = len(plane.server.requests)
        own = f"DELETE .*/namespaces/{fake.namespace}/"  # controllers may still clean up others
        with plane.failing(own, done=True, times=1) as fault, suppress(TemporaryError):
            fake.provisioner.delete(REF)
        sent = plane.server.requests[before:]
        deletions = [line for line in sent if re.match(own, line)]
        assert len(deletions) == fault.hits == 1, f"repeated by nobody but the caller: {sent}"
        gone(fake, REF)

    def test_slow_server_is_abandoned_at_the_deadline(self) -> None:
        with answering(b"", drips=True) as url:
            access = ClusterAccess("kubeconfig", _kubeconfig(url), deadline_s=0.3)
            own = KubernetesProvisioner(access, "models", CAPABILITIES)
            with pytest.raises(TemporaryError, match="did not finish in time"):
                own.observe(REF)

    @pytest.mark.parametrize("page", [b"<html>sign in</html>", b"[]", b""])
    def test_other_server_is_no_api_server(self, page: bytes) -> None:
        with answering(page) as url:
            access = ClusterAccess("kubeconfig", _kubeconfig(url))
            own = KubernetesProvisioner(access, "models", CAPABILITIES)
            with pytest.raises(TemporaryError, match="not a Kubernetes API server"):
                own.observe(REF)

    def test_server_with_an_untrusted_certificate_is_not_queried(self, fake: KubeRig) -> None:
        found = yaml.safe_load(fake.access().kubeconfig)
        del found["clusters"][0]["cluster"]["certificate-authority-data"]
        access = ClusterAccess("kubeconfig", yaml.safe_dump(found))
        own = KubernetesProvisioner(access, fake.namespace, CAPABILITIES)
        with pytest.raises(PermanentError) as caught:
            own.observe(REF)
        assert caught.value.reason == "ClusterUntrusted"


class TestRights:
    def test_displayed_role_covers_the_complete_lifecycle(self, provisioner_rig: KubeRig) -> None:
        needed = [one for one in rights.RIGHTS if not one.cluster]
        for document in yaml.safe_load_all(
            rights.manifest(needed, "person-2", provisioner_rig.namespace)
        ):
            provisioner_rig.cluster.api.create(
                document["kind"], provisioner_rig.namespace, document
            )
        own = provisioner_rig.another("person-2")
        around = Around(watches_services=("demo-pods",))
        spec = dataclasses.replace(provisioner_rig.spec("demo", 1), around=around)

        def ready() -> bool:
            try:
                return bool(own.observe(own.apply(spec)).ready())
            except PermanentError as error:  # a new Role takes effect with a delay
                assert error.reason == "ClusterRefused"
                return False

        until(ready, what="ready")
        assert own.drift(REF) == ()
        assert own.logs(REF)
        assert own.events(REF) is not None
        own.heal(REF)
        own.delete(REF)
        until(lambda: not own.observe(REF).exists, what="gone")

    def test_cluster_scoped_volumes_are_optional(self, fake: KubeRig) -> None:
        able = CAPABILITIES | {"s3-csi"}
        own = KubernetesProvisioner(fake.access(), fake.namespace, able)
        plane: Any = fake.cluster.plane
        with plane.failing("/persistentvolumes", 403) as fault:
            assert not own.observe(REF).exists
            own.delete(REF)
        assert fault.hits == 2

    def test_events_are_optional_without_permission(self, fake: KubeRig) -> None:
        fake.cluster.rule(fake.namespace, behaviour="never-ready")
        ref = fake.provisioner.apply(fake.spec("demo", 1))
        with fake.cluster.plane.failing("/events", 403):
            seen = fake.provisioner.observe(ref)
        assert seen.exists
        assert ("events", "ClusterRefused") in {(part.part, part.reason) for part in seen.parts}


class TestLogs:
    def test_container_log_is_followed_with_times_until_it_ends(
        self, provisioner_rig: KubeRig
    ) -> None:
        provisioner_rig.cluster.rule(
            provisioner_rig.namespace, behaviour="ready", log=["hello", "world"]
        )
        seen = settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        pod = seen.replicas[0].name
        lines: Iterator[str] = provisioner_rig.provisioner.follow(REF, pod, "worker")
        first = until(lambda: next(lines), what="a line")
        stamp, _, text = first.partition(" ")
        assert stamp.startswith("20")
        assert text
        lines.close()

    def test_silence_ends_nothing_while_the_container_runs(self) -> None:
        silent: Any = Silent()
        lines = list(logs.follow(silent, "demo", "demo-x", "worker", logs.LogPosition()))
        assert lines == [
            "2026-01-01T12:00:00.1Z a",
            "2026-01-01T12:00:00.25Z b",
            "2026-01-01T12:00:07Z c",
        ]
        first, again = silent.requests
        assert ("tailLines", "100") in first
        assert ("sinceTime", "2026-01-01T12:00:00Z") in again
        assert ("follow", "true") in first

    def test_log_without_follow_returns_available_lines(self) -> None:
        silent: Any = Silent()
        begin = logs.LogPosition(tail=7, stay=False)
        assert list(logs.follow(silent, "demo", "demo-x", "worker", begin))
        (requested,) = silent.requests
        assert ("tailLines", "7") in requested
        assert "follow" not in dict(requested)

    def test_only_pods_of_the_workload_are_read(self, provisioner_rig: KubeRig) -> None:
        settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        other = settle(provisioner_rig, provisioner_rig.spec("other", 1)).replicas[0].name
        for pod in (other, "nobody"):
            with pytest.raises(PermanentError) as caught:
                next(provisioner_rig.provisioner.follow(REF, pod, "worker"))
            assert caught.value.reason == "NoReplica"

    def test_pending_pod_has_no_log(self, provisioner_rig: KubeRig) -> None:
        provisioner_rig.cluster.rule(provisioner_rig.namespace, behaviour="pull-error")
        ref = provisioner_rig.provisioner.apply(provisioner_rig.spec("demo", 1))

        def waits() -> bool:
            seen = provisioner_rig.provisioner.observe(ref).replicas
            return bool(seen) and seen[0].reason == "ImagePullBackOff"

        until(waits, what="image pull error")
        assert list(provisioner_rig.provisioner.logs(ref).values()) == [""]
        assert provisioner_rig.provisioner.observe(ref).replicas[0].state is ReplicaState.STARTING


class Silent:
    """Client whose connection ends after each silence; the container ends after the second."""

    replies = (
        ("2026-01-01T12:00:00.1Z a", "2026-01-01T12:00:00.25Z b"),
        ("2026-01-01T12:00:00.1Z a", "2026-01-01T12:00:00.25Z b", "2026-01-01T12:00:07Z c"),
    )

    def __init__(self) -> None:
        self.requests: list[list[tuple[str, str]]] = []

    def get(self, kind: object, name: str) -> dict[str, Any]:
        state = {"running": {}} if len(self.requests) < 2 else {"terminated": {}}
        return {
            "metadata": {"labels": {"emberline.dev/workload": "demo"}},
            "status": {"containerStatuses": [{"name": "worker", "state": state}]},
        }

    def follow(self, pod: str, query: list[tuple[str, str]], quiet_s: float) -> Iterator[str]:
        self.requests.append(query)
        return iter(self.replies[len(self.requests) - 1])


@contextmanager
def answering(page: bytes, *, drips: bool = False) -> Iterator[str]:
    """Serve one response to every request, endlessly byte by byte if it `drips`."""
    stop = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(page)
                while drips and not stop.wait(0.05):
                    self.wfile.write(b" ")

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        stop.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _kubeconfig(url: str) -> str:
    cluster = {"name": "x", "cluster": {"server": url}}
    context = {"name": "x", "context": {"cluster": "x"}}
    return yaml.safe_dump(
        {"clusters": [cluster], "contexts": [context], "current-context": "x", "users": []}
    )
