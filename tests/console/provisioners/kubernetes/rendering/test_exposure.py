"""Rendering around the pods: network policy, scaling, exposure, monitoring. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.provisioners.base import PermanentError, WorkloadSpec
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.rendering.anchor import OwnedItem, inventory, set_owner
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import RenderingTarget, declined
from console.provisioners.pods import Autoscale, Exposure, Peer, Scrape
from tests.console.provisioners.kubernetes.rendering.matrix import (
    BARE,
    EVERYTHING,
    ROUTERS,
    SECRETS,
    SPECS,
    TARGET,
    WORKER,
    around_changed,
    exposed,
    pod_changed,
    rendered,
)


def refused(spec: WorkloadSpec, target: RenderingTarget = TARGET) -> str:
    with pytest.raises(PermanentError) as caught:
        render(spec, target, SECRETS)
    return f"{caught.value.reason}: {caught.value.message}"


def without(*capabilities: str) -> RenderingTarget:
    return RenderingTarget("models", EVERYTHING - set(capabilities))


@pytest.mark.parametrize("name", SPECS)
def test_anchor_comes_first_and_lists_the_objects(name: str) -> None:
    anchor, *others = render(SPECS[name], TARGET, SECRETS)
    assert (anchor["kind"], anchor["metadata"]["name"]) == ("ConfigMap", SPECS[name].name)
    listed = {
        OwnedItem(data["apiVersion"], data["kind"], data["metadata"]["name"]) for data in others
    }
    assert inventory(anchor) == listed
    assert len(listed) == len(others)
    for data in others:
        assert kinds.kind_of(data)


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["a"]]', "null"])
def test_invalid_inventory_is_empty(text: str) -> None:
    assert inventory({"data": {"inventory": text}}) == frozenset()


def test_anchor_owns_objects_of_its_namespace() -> None:
    for data in render(SPECS["worker-s3"], TARGET, SECRETS)[1:]:
        mine = set_owner(data, "demo-worker", "u-1")["metadata"]
        if data["kind"] == "PersistentVolume":
            assert "ownerReferences" not in mine
        else:
            (owner,) = mine["ownerReferences"]
            assert (owner["kind"], owner["uid"]) == ("ConfigMap", "u-1")
            assert owner["blockOwnerDeletion"] is True
        assert "ownerReferences" not in data["metadata"]


def rules(spec: WorkloadSpec) -> dict[int, list[dict[str, Any]] | None]:
    """Return the allowed peers by port; None: everybody."""
    policy = rendered(spec)[f"NetworkPolicy/{spec.name}"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    return {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}


def test_only_the_router_of_the_endpoint_reaches_a_channel() -> None:
    for port in (5557, 5558):
        (peer,) = rules(WORKER)[port] or ()
        assert "namespaceSelector" not in peer
        labels = peer["podSelector"]["matchLabels"]
        assert labels["app.kubernetes.io/component"] == "router"
        assert labels["emberline.dev/owner"] == "endpoint.demo"


def test_unlisted_ports_are_closed() -> None:
    closed = around_changed(WORKER, reach={}, scrape=())
    assert rules(closed) == {}


def test_peer_role_without_a_namespace_matches_all_namespaces() -> None:
    spec = around_changed(WORKER, reach={"http": (Peer("worker"),)}, scrape=())
    (peer,) = rules(spec)[8000] or ()
    assert peer["namespaceSelector"] == {}
    assert peer["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"


def test_prometheus_reaches_its_targets() -> None:
    spec = around_changed(WORKER, reach={}, scrape=(Scrape("http"),))
    names = [
        peer["podSelector"]["matchLabels"]["app.kubernetes.io/name"]
        for peer in rules(spec)[8000] or ()
    ]
    assert names == ["emberline", "prometheus"]
    open_ = around_changed(WORKER, reach={"http": ()}, scrape=(Scrape("http"),))
    assert rules(open_)[8000] is None


def test_exposed_ports_are_open() -> None:
    spec = around_changed(ROUTERS, reach={"http": (Peer("console"),)})
    assert rules(spec)[8080] is None
    assert rules(spec)[9090] is not None


def test_unknown_port() -> None:
    spec = around_changed(WORKER, reach={"htpp": ()})
    assert refused(spec).startswith("UnknownPort")


def test_rights_cover_only_slices_of_the_own_namespace() -> None:
    role = rendered(ROUTERS)["Role/demo-router"]
    assert role["rules"] == [
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["get", "list", "watch"],
        }
    ]
    assert role["metadata"]["namespace"] == "models"
    assert not [name for name in rendered(WORKER) if name.startswith("Role")]


def test_given_account_gets_the_right() -> None:
    objects = rendered(SPECS["router-account"])
    assert "ServiceAccount/demo-router" not in objects
    assert objects["RoleBinding/demo-router"]["subjects"][0]["name"] == "routers"


def test_no_rights_in_another_namespace() -> None:
    assert "'other/x'" in refused(around_changed(ROUTERS, watches_services=("other/x",)))
    render(around_changed(ROUTERS, watches_services=("models/x",)), TARGET, SECRETS)


def test_autoscaler_owns_the_replica_count() -> None:
    objects = rendered(ROUTERS)
    assert "replicas" not in objects["Deployment/demo-router"]["spec"]
    assert objects["HorizontalPodAutoscaler/demo-router"]["spec"]["minReplicas"] == 2
    objects = rendered(SPECS["worker-keda"])
    assert "replicas" not in objects["Deployment/demo-worker"]["spec"]
    assert "HorizontalPodAutoscaler/demo-worker" not in objects


def test_pause_overrides_an_autoscaler() -> None:
    objects = rendered(SPECS["worker-paused"])
    assert objects["Deployment/demo-worker"]["spec"]["replicas"] == 0
    assert "ScaledObject/demo-worker" not in objects


def test_keda_triggers_are_strings() -> None:
    body = rendered(SPECS["worker-keda"])["ScaledObject/demo-worker"]["spec"]
    first = body["triggers"][0]["metadata"]
    assert (first["threshold"], first["ignoreNullValues"]) == ("5", "false")
    assert body["triggers"][-1]["metadata"] == {"value": "80"}
    assert (body["minReplicaCount"], body["maxReplicaCount"]) == (0, 20)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (Autoscale(3, 2, cpu_percent=70), "not a valid range"),
        (Autoscale(0, 0, ({"type": "cron"},)), "not a valid range"),
        (Autoscale(1, 2), "neither a trigger"),
        (Autoscale(0, 2, cpu_percent=70), "scaling to 0"),
    ],
)
def test_unscalable_workloads(scale: Autoscale, message: str) -> None:
    assert message in refused(around_changed(WORKER, autoscale=scale))


def test_cpu_share_is_relative_to_the_request() -> None:
    spec = around_changed(replace(WORKER, cpus=0), autoscale=Autoscale(1, 2, cpu_percent=70))
    assert "CPU request" in refused(spec)
    render(pod_changed(spec, resources={"requests": {"cpu": "1"}}), TARGET, SECRETS)


@pytest.mark.parametrize(
    ("name", "capability"),
    [
        ("worker-keda", "keda"),
        ("router", "metrics-server"),
        ("router", "ingress"),
        ("router-gateway", "gateway-api"),
        ("router-loadbalancer", "load-balancer"),
        ("router-ingress-tls", "cert-manager"),
        ("router-own-gateway", "cert-manager"),
    ],
)
def test_missing_required_capability(name: str, capability: str) -> None:
    content = refused(SPECS[name], without(capability))
    assert content.startswith("MissingCapability: ")
    assert "demo-" in content


def test_missing_optional_capability_is_skipped_with_a_notice() -> None:
    plain = replace(SPECS["worker-gpu"], around=WORKER.around)
    kinds_made = {name.partition("/")[0] for name in rendered(plain, BARE)}
    assert "PodMonitor" not in kinds_made
    assert {(part.part, part.reason) for part in declined(plain, BARE)} == {
        ("PodMonitor", "NoPrometheusOperator"),
        ("NetworkPolicy", "NotEnforced"),
        ("Nodes", "NoGpuNode"),
    }
    assert all(part.ready is None and part.message for part in declined(plain, BARE))
    assert declined(plain, TARGET) == ()


def test_services_are_annotated_without_an_operator() -> None:
    notes = rendered(WORKER, BARE)["Service/demo-worker-pods"]["metadata"]["annotations"]
    assert notes["prometheus.io/port"] == "8000"
    assert "annotations" not in rendered(WORKER)["Service/demo-worker-pods"]["metadata"]
    assert "annotations" not in rendered(WORKER, BARE)["Service/demo-worker"]["metadata"]


def test_metrics_have_the_labels_of_console_targets() -> None:
    for spec, job, label, value in (
        (WORKER, "vllm", "endpoint_name", "demo"),
        (ROUTERS, "router", "endpoint_name", "demo"),
        (SPECS["cache"], "l2", "pool", "shared"),
    ):
        (end,) = rendered(spec)[f"PodMonitor/{spec.name}"]["spec"]["podMetricsEndpoints"]
        labels = {
            entry["targetLabel"]: entry["replacement"]
            for entry in end["relabelings"]
            if "targetLabel" in entry
        }
        assert labels == {"job": job, label: value}


def test_ingress_does_not_buffer_or_cut_streams() -> None:
    notes = rendered(ROUTERS)["Ingress/demo-router"]["metadata"]["annotations"]
    assert notes["nginx.ingress.kubernetes.io/proxy-read-timeout"] == "3600"
    mine = {"nginx.ingress.kubernetes.io/proxy-read-timeout": "9"}
    notes = rendered(exposed("ingress", annotations=mine))["Ingress/demo-router"]["metadata"]
    assert notes["annotations"]["nginx.ingress.kubernetes.io/proxy-read-timeout"] == "9"
    (rule,) = rendered(SPECS["router-gateway"])["HTTPRoute/demo-router"]["spec"]["rules"]
    assert rule["timeouts"] == {"request": "0s"}


def test_certificate_is_where_the_ingress_expects_it() -> None:
    objects = rendered(SPECS["router-ingress-tls"])
    certificate = objects["Certificate/demo-router"]["spec"]
    assert objects["Ingress/demo-router"]["spec"]["tls"][0]["secretName"] == "demo-certificate"
    assert certificate["secretName"] == "demo-certificate"
    assert certificate["issuerRef"]["kind"] == "Issuer"
    assert certificate["dnsNames"] == ["demo.example.org"]


def test_own_gateway_terminates_tls() -> None:
    objects = rendered(SPECS["router-own-gateway"])
    (listener,) = objects["Gateway/demo-router"]["spec"]["listeners"]
    assert (listener["port"], listener["protocol"]) == (443, "HTTPS")
    assert listener["tls"]["certificateRefs"][0]["name"] == "demo-router-tls"
    assert objects["Certificate/demo-router"]["spec"]["issuerRef"]["kind"] == "ClusterIssuer"
    plain = rendered(exposed("gateway", class_name="envoy"))["Gateway/demo-router"]["spec"]
    assert (plain["listeners"][0]["port"], plain["listeners"][0]["protocol"]) == (80, "HTTP")


def test_only_the_exposed_port_is_public() -> None:
    service = rendered(SPECS["router-loadbalancer"])["Service/demo-router-public"]
    assert [port["targetPort"] for port in service["spec"]["ports"]] == ["http"]
    notes = service["metadata"]["annotations"]
    assert notes["external-dns.alpha.kubernetes.io/hostname"] == "demo.example.org"
    certificate = {"service.beta.kubernetes.io/aws-load-balancer-ssl-cert": "arn:x"}
    secure = rendered(exposed("loadbalancer", annotations=certificate, class_name="c"))
    service = secure["Service/demo-router-public"]["spec"]
    assert (service["ports"][0]["port"], service["loadBalancerClass"]) == (443, "c")


@pytest.mark.parametrize(
    ("exposure", "message"),
    [
        (Exposure("carrier-pigeon", "http"), "ingress, gateway, loadbalancer"),
        (Exposure("ingress", "htpp"), "'htpp'"),
        (Exposure("gateway", "http"), "name a Gateway"),
        (Exposure("gateway", "http", gateway="a/b", tls_secret="s"), "TLS is configured on"),
        (Exposure("loadbalancer", "http", tls_secret="s"), "cannot terminate TLS"),
        (Exposure("ingress", "http", issuer="x"), "host name"),
    ],
)
def test_unexposable_workloads(exposure: Exposure, message: str) -> None:
    assert message in refused(around_changed(ROUTERS, exposure=exposure))


def test_node_with_a_broken_pod_can_be_drained() -> None:
    body = rendered(WORKER)["PodDisruptionBudget/demo-worker"]["spec"]
    assert (body["maxUnavailable"], body["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


def test_minimal_workload_has_no_additional_objects() -> None:
    made = {name.partition("/")[0] for name in rendered(SPECS["plain"])}
    assert made == {"ConfigMap", "Service", "Deployment"}
