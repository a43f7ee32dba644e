"""Router pods on a cluster: workload, files, and several routers."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from console.core.state_store import StateStore
from console.provisioners.base import (
    Observation,
    PermanentError,
    Ref,
    ReplicaObservation,
    ReplicaState,
    WorkloadSpec,
    asdict_plain,
)
from console.provisioners.kubernetes.api import capabilities as able
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets
from endpoints.keys.terms import KeyTerms
from endpoints.lifecycle.components import EndpointFacts
from endpoints.router.compiler import compile_config, compile_keys
from endpoints.router.component import RouterComponent
from endpoints.router.workload import SERVICE_PORT, router_spec, to_pods, to_processes
from endpoints.spec.endpoint_spec import merge, parse
from routing.engine.config import parse as parse_config
from routing.engine.config import parse_keys, show_key
from tests.endpoints.router.test_compiler import ENDPOINT, KEY, worker
from tests.support.http_stub import http_stub

GOLDEN = Path(__file__).parent / "golden" / "router_pod.json"
EXPOSED = {
    "exposure.kind": "ingress",
    "exposure.host": "llm.example.com",
    "exposure.tls": "cert-manager",
    "exposure.issuer": "ClusterIssuer/main",
}


def on_cluster(**changes: Any) -> EndpointFacts:
    base = {"name": "demo", "model": "m", "placement": {"cluster": "prod"}}
    flat = {key.replace("__", "."): value for key, value in changes.items()}
    return replace(ENDPOINT, spec=parse(merge(base, flat)), cluster_namespace="llm")


def pods(endpoint: EndpointFacts) -> WorkloadSpec:
    spec = router_spec("demo", compile_config(endpoint, ()), compile_keys(endpoint))
    return to_pods(spec, endpoint, "emberline-engine:1")


def test_golden() -> None:
    endpoint = on_cluster(**{**EXPOSED, "router.max_replicas": 6, "limits.max_concurrent": 9})
    text = json.dumps(asdict_plain(pods(endpoint)), indent=1) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text(), "UPDATE_GOLDEN=1 writes it anew; then read the diff"


def test_router_discovers_only_workers_of_its_endpoint() -> None:
    endpoint = on_cluster()
    config = compile_config(endpoint, (worker(0), worker(1)))
    assert "workers" not in config
    shown = {**config, "listen": "127.0.0.1:1", "admin": "", "api_keys_file": ""}
    found = parse_config(shown, Path("/")).discovery
    assert [str(one) for one in found.services] == ["llm/demo-worker-pods:http"]
    around = pods(endpoint).around
    assert around is not None
    assert around.watches_services == ("demo-worker-pods",)


def test_worker_changes_change_no_file_of_a_router() -> None:
    endpoint = on_cluster()
    assert compile_config(endpoint, (worker(0),)) == compile_config(endpoint, ())


def test_keys_are_in_a_secret_and_the_service_has_the_published_port() -> None:
    target = RenderingTarget("llm", frozenset(able.CAPABILITIES))
    objects = render(pods(on_cluster()), target, Secrets())
    by_kind = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert set(by_kind["Secret", "demo-router-files"]["data"]) == {"keys.json", "prefix.key"}
    config = by_kind["ConfigMap", "demo-router-files"]["data"]
    assert KEY.sha256 not in json.dumps(config)
    ports = by_kind["Service", "demo-router"]["spec"]["ports"]
    assert {one["name"]: one["port"] for one in ports}["http"] == SERVICE_PORT


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, None),
        ({"limits__max_concurrent": 9}, {"worker_max_in_flight": 5}),
        ({"limits__max_queue": 0}, {"queue": {"depth": 0}}),
        ({"limits__max_queue": 3, "replicas": 3}, {"queue": {"depth": 5}}),
    ],
)
def test_limits_of_workers_are_shared_among_routers(
    changes: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    assert compile_config(on_cluster(**changes), ()).get("admission") == expected


def test_queue_follows_the_autoscaler() -> None:
    endpoint = replace(on_cluster(limits__max_queue=3, replicas=3), wanted=8)
    assert compile_config(endpoint, ())["admission"] == {"queue": {"depth": 12}}
    asleep = compile_config(replace(endpoint, wanted=0), ())
    assert asleep["admission"] == {"queue": {"depth": 2}}


REDIS = {
    "cache.l2.enabled": True,
    "cache.l2.backend": "redis",
    "cache.l2.url": "redis://cache:6379/2",
    "cache.l2.password_file": "/etc/l2/pass",
    "limits.max_concurrent": 9,
}


def test_routers_share_state_through_the_endpoints_redis() -> None:
    endpoint = on_cluster(**REDIS)
    config = compile_config(endpoint, ())
    assert config["state_store"] == {"url": "redis://cache:6379/2", "routers": 2}
    assert config["admission"] == {"worker_max_in_flight": 9}  # not divided
    terms = replace(KEY, terms=KeyTerms(requests_per_minute=600))
    (key,) = compile_keys(replace(endpoint, keys=(terms,)))["keys"]
    assert key["limits"] == {"requests_per_minute": 600}
    spec = to_pods(pods(endpoint), endpoint, "image", "/etc/l2")
    assert spec.secret_env == {"EMBERLINE_STATE_STORE_PASSWORD": "/etc/l2/pass"}
    assert spec.secrets_within == {"EMBERLINE_STATE_STORE_PASSWORD": "/etc/l2"}


@pytest.mark.parametrize(
    "changes",
    [
        {"router.replicas": 1},
        {"cache.l2.backend": "tieredstorage"},
        {"cache.l2.url": "redis://a:1,b:1?nodes=cluster"},
        {"cache.l2.url": "rediss://a:1?ca_file=/in/worker/pods"},
    ],
)
def test_routers_without_a_usable_store_divide_the_limits(changes: dict[str, Any]) -> None:
    endpoint = on_cluster(**(REDIS | changes))
    assert "state_store" not in compile_config(endpoint, ())
    assert not to_pods(pods(endpoint), endpoint, "image").secret_env


INSTALLED = StateStore("rediss://valkey.data:6379/1", "router", "/etc/store/password", "-----CA")


def test_routers_of_the_consoles_cluster_share_state_through_the_installations_store() -> None:
    here = {"placement.cluster": "in-cluster", "limits.max_concurrent": 9}
    endpoint = on_cluster(**here)
    config = compile_config(endpoint, (), installed=INSTALLED)
    assert config["state_store"] == {
        "url": "rediss://valkey.data:6379/1",
        "username": "router",
        "ca": "state-store-ca.pem",
        "routers": 2,
    }
    assert config["admission"] == {"worker_max_in_flight": 9}  # not divided
    terms = replace(endpoint, keys=(replace(KEY, terms=KeyTerms(requests_per_minute=600)),))
    (key,) = compile_keys(terms, INSTALLED)["keys"]
    assert key["limits"] == {"requests_per_minute": 600}
    spec = to_pods(pods(endpoint), endpoint, "image", "/etc/l2", INSTALLED)
    assert spec.secret_env == {"EMBERLINE_STATE_STORE_PASSWORD": "/etc/store/password"}
    assert not spec.secrets_within  # not named by a user
    assert {one.path: one.content for one in spec.live_files}["state-store-ca.pem"] == "-----CA"
    assert "/etc/store" not in json.dumps([*spec.argv, config])


@pytest.mark.parametrize(
    "changes",
    [
        {"placement.cluster": "elsewhere"},  # may not reach it
        {"placement.cluster": "in-cluster", "router.replicas": 1},
        {"placement.cluster": "in-cluster", **REDIS},  # a store of its own
    ],
)
def test_installations_store_is_not_used(changes: dict[str, Any]) -> None:
    endpoint = on_cluster(**changes)
    assert compile_config(endpoint, (), installed=INSTALLED) == compile_config(endpoint, ())
    assert compile_keys(endpoint, INSTALLED) == compile_keys(endpoint)
    with_store = to_pods(pods(endpoint), endpoint, "image", "/etc/l2", INSTALLED)
    assert with_store == to_pods(pods(endpoint), endpoint, "image", "/etc/l2")


def resources(endpoint: EndpointFacts) -> dict[str, Any]:
    target = RenderingTarget("llm", frozenset(able.CAPABILITIES))
    objects = render(pods(endpoint), target, Secrets())
    (workload,) = [one for one in objects if one["kind"] == "Deployment"]
    found: dict[str, Any] = workload["spec"]["template"]["spec"]["containers"][0]["resources"]
    return found


def test_requests_and_limits_are_the_endpoints_own() -> None:
    assert resources(on_cluster()) == {
        "requests": {"cpu": "250m", "memory": "512Mi"},
        "limits": {"memory": "512Mi"},
    }
    given = {"cpus": 0.5, "cpu_limit": 1.5, "memory_gib": 1, "memory_limit_gib": 2}
    assert resources(on_cluster(**{f"router.{key}": value for key, value in given.items()})) == {
        "requests": {"cpu": "500m", "memory": "1Gi"},
        "limits": {"cpu": "1500m", "memory": "2Gi"},
    }


@pytest.mark.parametrize(
    ("given", "percent"),
    [
        ({}, 280),
        ({"router.cpus": 1}, 70),
        ({"router.cpus": 2}, 35),
        ({"router.cpu_limit": 0.5}, 140),
        ({"router.cpu_limit": 4}, 280),
    ],
)
def test_routers_are_scaled_by_the_core_they_can_use(given: dict[str, Any], percent: int) -> None:
    """Whatever is requested: a smaller request must not mean more routers for the same load."""
    around = pods(on_cluster(**{"router.max_replicas": 6, **given})).around
    assert around is not None
    assert around.autoscale is not None
    assert around.autoscale.cpu_percent == percent


class Cluster:
    """A provisioner with the given pods."""

    name, rolls, announces = "kubernetes", True, False

    def __init__(self, *replicas: ReplicaObservation, url: str = "") -> None:
        self.seen = Observation(True, replicas, url=url)
        self.applied: list[WorkloadSpec] = []

    def apply(self, spec: WorkloadSpec) -> Ref:
        self.applied.append(spec)
        return Ref(self.name, spec.name)

    def observe(self, _ref: Ref) -> Observation:
        return self.seen


def pod(index: int, admin: str, state: ReplicaState = ReplicaState.READY) -> ReplicaObservation:
    urls = {"http": f"http://10.0.0.{index}:8080", "admin": admin}
    return ReplicaObservation(f"demo-router-{index}", index, state, "any", urls, message="late")


def router_status(strategy: str = "prefixaware", **workers: tuple[str, int]) -> dict[str, Any]:
    listed = [
        {"id": name, "url": "u", "state": state, "in_flight": count}
        for name, (state, count) in workers.items()
    ]
    keys = [show_key(key) for key in parse_keys(compile_keys(ENDPOINT))]
    config = {"strategy": strategy, "session_key": "header:x-session-id", "keys": keys}
    return {"/workers": (200, {"workers": listed}), "/config": (200, {"config": config})}


def reconcile(cluster: Cluster) -> Any:
    component = RouterComponent(lambda _endpoint: cast(Any, cluster), lambda: "image")
    return component.reconcile(on_cluster(), (worker(0),))


def test_every_router_is_queried_and_the_worst_status_counts() -> None:
    good = router_status(**{"demo-worker-0": ("up", 2)})
    with http_stub(dict(good)) as one, http_stub(dict(good)) as two:
        cluster = Cluster(pod(0, one.url), pod(1, two.url))
        status = reconcile(cluster)
        assert status.ready
        assert "2 routers serve" in status.message
        assert status.facts["workers"]["demo-worker-0"] == {"state": "up", "in_flight": 4}
        assert status.url == "http://demo-router.llm.svc:8080"
        assert status.ask_url == "http://10.0.0.0:8080"
        assert status.facts["admin_urls"] == [one.url, two.url]
        assert cluster.applied[0].image == "image"

        two.answers.update(router_status("session", **{"demo-worker-0": ("up", 2)}))
        assert reconcile(cluster).reason == "RouterTakingOver"
        two.answers.update(router_status(**{"demo-worker-0": ("down", 0)}))
        assert reconcile(cluster).reason == "RouterWaitingForWorkers"
        assert reconcile(cluster).facts["workers"]["demo-worker-0"]["state"] == "down"
        two.answers.update(router_status())
        blind = reconcile(cluster)
        assert blind.reason == "RouterWaitingForWorkers"
        assert "not discovered yet" in blind.message
        cluster.seen = replace(cluster.seen, url="https://llm.example.com")
        two.answers.update(good)
        assert reconcile(cluster).url == "https://llm.example.com"
    assert reconcile(cluster).reason == "RouterSilent"


def test_missing_routers_are_reported_with_the_reason() -> None:
    with http_stub(router_status(**{"demo-worker-0": ("up", 0)})) as one:
        late = pod(1, "", ReplicaState.STARTING)
        status = reconcile(Cluster(pod(0, one.url), late))
    assert (status.ready, status.reason) == (False, "RouterStarting")
    assert "1 of 2 routers serve. demo-router-1 is starting: late." in status.message


OWN = {"router.state_store.url": "rediss://store:6380/2", "router.state_store.username": "routers"}


def own_store(folder: Path, *, placement: str = "prod") -> EndpointFacts:
    (folder / "password").write_text("secret\n")
    (folder / "ca.pem").write_text("-----CA of the store\n")
    files = {
        "router.state_store.password_file": str(folder / "password"),
        "router.state_store.ca_file": str(folder / "ca.pem"),
    }
    return on_cluster(**{**REDIS, **OWN, **files, "placement.cluster": placement})


def test_own_store_comes_before_the_l2_cache_with_its_files(tmp_path: Path) -> None:
    endpoint = own_store(tmp_path)
    assert compile_config(endpoint, ())["state_store"] == {
        "url": "rediss://store:6380/2",
        "username": "routers",
        "ca": "state-store-ca.pem",
        "routers": 2,
    }
    spec = to_pods(pods(endpoint), endpoint, "image", str(tmp_path))
    name = "EMBERLINE_STATE_STORE_PASSWORD"
    assert spec.secret_env == {name: str(tmp_path / "password")}
    assert spec.secrets_within == {name: str(tmp_path)}
    files = {one.path: one.content for one in spec.live_files}
    assert files["state-store-ca.pem"] == "-----CA of the store"
    with pytest.raises(PermanentError, match="is not inside"):
        to_pods(pods(endpoint), endpoint, "image", str(tmp_path / "elsewhere"))


def on_machine(**changes: Any) -> EndpointFacts:
    return replace(on_cluster(**{"placement.cluster": "", **changes}), cluster_namespace="")


LOCAL_STORE = StateStore("redis://127.0.0.1:16379/0", "routers", "/var/secrets/store")


def test_routers_on_this_machine_share_the_port_and_the_embedded_store() -> None:
    def made(endpoint: EndpointFacts) -> WorkloadSpec:
        config = compile_config(endpoint, (worker(0),), installed=LOCAL_STORE)
        spec = router_spec("demo", config, compile_keys(endpoint, LOCAL_STORE))
        return to_processes(spec, endpoint, "/etc/l2", LOCAL_STORE, "/var/router")

    one, two = made(on_machine()), made(on_machine(**{"router.replicas": 2}))
    assert (one.replicas, two.replicas) == (1, 2)
    assert one.shared_ports == two.shared_ports == ("http",)
    assert one.env == {"PYTHONPATH": "/var/router"}, "the compiled copy"
    assert one.spec_hash == two.spec_hash, "adding a router restarts none"
    moved = made(replace(on_machine(), url="http://127.0.0.1:22492"))
    assert (one.preferred_ports, moved.preferred_ports) == ({}, {"http": 22492})
    assert moved.spec_hash == one.spec_hash
    assert two.secret_env == {"EMBERLINE_STATE_STORE_PASSWORD": "/var/secrets/store"}
    configs = [json.loads(spec.live_files[-1].content) for spec in (one, two)]
    assert [config["reuse_port"] for config in configs] == [True, True]
    stores = [config.get("state_store") for config in configs]
    url = "redis://127.0.0.1:16379/0"
    assert stores == [None, {"url": url, "username": "routers", "routers": 2}]


def test_limits_are_divided_among_routers_of_this_machine_without_a_store() -> None:
    terms = replace(KEY, terms=KeyTerms(requests_per_minute=600))
    two = replace(on_machine(**{"router.replicas": 2}), keys=(terms,))
    assert compile_keys(two)["keys"][0]["limits"] == {"requests_per_minute": 300}
    assert compile_keys(two, LOCAL_STORE)["keys"][0]["limits"] == {"requests_per_minute": 600}
