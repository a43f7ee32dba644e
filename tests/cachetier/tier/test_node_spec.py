"""Node workload, phase table and figures."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cachetier.client.node_list import Nodes
from cachetier.engine.config import parse as parse_node
from cachetier.tier import node_stats
from cachetier.tier.lifecycle import judge_tier
from cachetier.tier.node_spec import NodeFacts, node_spec, nodes_url, to_pods
from cachetier.tier.spec import GIB, TierSpec
from console.provisioners.base import Observation, ReplicaObservation, ReplicaState, asdict_plain
from console.provisioners.kubernetes.api.capabilities import CAPABILITIES
from console.provisioners.kubernetes.rendering.render import render
from console.provisioners.kubernetes.rendering.target import RenderingTarget, Secrets
from console.provisioners.specs import ReplicaFacts, check_spec
from tests.support.http_stub import http_stub

FACTS = NodeFacts("default", TierSpec(), Path("/var/secrets/l2_password"))


def test_spec_is_accepted_by_the_engine() -> None:
    spec = node_spec(FACTS, python="python")
    check_spec(spec)
    assert spec.name == "cache-default"
    assert spec.argv == (
        "python",
        "-m",
        "cachetier.engine",
        "--listen",
        "{host}:{port:resp}",
        "--memory",
        "@memory",
        "--password-file",
        "/var/secrets/l2_password",
        "--admin",
        "{host}:{port:admin}",
        "--pool",
        "default",
        "--policy",
        "arc",
        "--shm",
        "emberline-22b32ff5-default-{replica}",
    )
    assert (spec.probe.path, spec.probe.port) == ("/healthz", "admin")
    assert spec.memory_bytes > FACTS.spec.memory_bytes


def test_two_consoles_on_one_machine_share_no_memory() -> None:
    other = NodeFacts("default", FACTS.spec, Path("/other/secrets/l2_password"))
    (mine,), (theirs,) = (
        [word for word in node_spec(facts).argv if word.startswith("emberline-")]
        for facts in (FACTS, other)
    )
    assert mine != theirs


def test_disk_is_in_the_folder_of_its_node() -> None:
    spec = node_spec(NodeFacts("default", TierSpec(disk_bytes=2**30), FACTS.password_file))
    assert spec.argv[-2:] == ("--disk", "{dir}/values:1073741824")
    assert "--disk" not in node_spec(FACTS).argv


def test_changed_policy_changes_the_spec() -> None:
    other = NodeFacts("default", TierSpec(policy="lru"), FACTS.password_file)
    assert node_spec(FACTS).spec_hash != node_spec(other).spec_hash


def test_added_nodes_keep_the_spec() -> None:
    more = NodeFacts("default", TierSpec(node_count=3), FACTS.password_file)
    assert node_spec(FACTS).spec_hash == node_spec(more).spec_hash
    assert node_spec(more).replicas == 3


ON_CLUSTER = NodeFacts(
    "chat",
    TierSpec(disk_bytes=2**30, node_count=2, cluster="prod", storage_class="fast"),
    FACTS.password_file,
)


def test_cluster_pods_equal_the_golden_file() -> None:
    spec = to_pods(node_spec(ON_CLUSTER), ON_CLUSTER, "emberline-engine:1")
    text = json.dumps(asdict_plain(spec), indent=1) + "\n"
    path = Path(__file__).parent / "golden" / "node_pod.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), "UPDATE_GOLDEN=1 writes it anew; then read the diff"


def test_pod_accepts_its_arguments_and_reads_its_password_from_a_secret(tmp_path: Path) -> None:
    spec = to_pods(node_spec(ON_CLUSTER), ON_CLUSTER, "emberline-engine:1")
    (tmp_path / "password").write_text("x" * 20)
    (tmp_path / "memory").write_text(str(2**30))
    facts = ReplicaFacts("0.0.0.0", str(tmp_path), "$(R)", {"resp": 6400, "admin": 9091})
    argv = [facts.fill(word).replace("@memory", f"@{tmp_path}/memory") for word in spec.argv]
    argv = [word.replace("/emberline/values", str(tmp_path)) for word in argv]
    config = parse_node(argv[3:])
    assert config.passwords == ("x" * 20,)
    assert config.shm == "", "pods share no memory"
    assert config.disk is not None
    assert spec.secret_files == {"password": "/var/secrets/l2_password"}
    assert spec.pod is not None
    (disk,) = spec.pod.disks
    assert disk.size_bytes > config.disk.size_bytes, "a file system keeps some for itself"


def test_node_requests_and_limits_equal_the_tier_size() -> None:
    def resources(**given: Any) -> dict[str, Any]:
        facts = replace(ON_CLUSTER, spec=replace(ON_CLUSTER.spec, **given))
        target = RenderingTarget("llm", frozenset(CAPABILITIES))
        spec = to_pods(node_spec(facts), facts, "image")
        objects = render(spec, target, Secrets(files={"password": "x"}))
        (workload,) = [one for one in objects if one["kind"] == "StatefulSet"]
        found: dict[str, Any] = workload["spec"]["template"]["spec"]["containers"][0]["resources"]
        return found

    size = "1216Mi"
    assert resources() == {"requests": {"cpu": "250m", "memory": size}, "limits": {"memory": size}}
    given = {"cpu_millis": 500, "cpu_limit_millis": 2000, "memory_limit_bytes": 2 * GIB}
    assert resources(**given) == {
        "requests": {"cpu": "500m", "memory": size},
        "limits": {"cpu": "2", "memory": "2Gi"},
    }


def test_workers_find_all_nodes_by_one_name() -> None:
    both = NodeFacts("chat", replace(ON_CLUSTER.spec, copies=2), FACTS.password_file)
    url = nodes_url(both, "llm")
    assert url == "redis://cache-chat-pods.llm.svc:6400?nodes=dns&replicas=2"
    nodes = Nodes.parse(url)
    assert (nodes.kind, nodes.replicas) == ("dns", 2)
    objects = render(
        to_pods(node_spec(both), both, "image"),
        RenderingTarget("llm", frozenset(CAPABILITIES)),
        Secrets(files={"password": "x"}),
    )
    names = [one["metadata"]["name"] for one in objects if one["kind"] == "Service"]
    assert "cache-chat-pods" in names


def node(state: ReplicaState, spec_hash: str = "new") -> Observation:
    return Observation(True, (ReplicaObservation("cache-default-0", 0, state, spec_hash, {}),))


@pytest.mark.parametrize(
    ("seen", "was_ready", "phase", "reason"),
    [
        (Observation(exists=False), False, "Provisioning", "StartingNodes"),
        (node(ReplicaState.STARTING), False, "Provisioning", "StartingNodes"),
        (node(ReplicaState.READY), False, "Ready", "Serving"),
        (node(ReplicaState.READY, "old"), True, "Degraded", "ReplacingNodes"),
        (node(ReplicaState.BACKOFF), True, "Degraded", "NodeRestarting"),
        (node(ReplicaState.EXITED), False, "Provisioning", "NodeRestarting"),
        (node(ReplicaState.STARTING), True, "Degraded", "StartingNodes"),
    ],
)
def test_phases(seen: Observation, was_ready: bool, phase: str, reason: str) -> None:
    verdict = judge_tier(seen, "new", wanted=1, was_ready=was_ready, deleting=False)
    assert (verdict.phase, verdict.reason) == (phase, reason)


def test_deleting_precedes_all_other_phases() -> None:
    verdict = judge_tier(node(ReplicaState.READY), "new", wanted=1, was_ready=True, deleting=True)
    assert verdict.phase == "Deleting"


METRICS = """\
emberline_l2_used_bytes{pool="default",medium="memory"} 1000
emberline_l2_capacity_bytes{pool="default",medium="memory"} 4000
emberline_l2_used_bytes{pool="default",medium="nvme"} 70
emberline_l2_capacity_bytes{pool="default",medium="nvme"} 700
emberline_l2_operations_total{pool="default",op="get",result="hit"} 5
emberline_l2_operations_total{pool="default",op="get",result="miss"} 5
emberline_l2_operations_total{pool="default",op="put",result="ok"} 9
emberline_l2_lookup_blocks_total{pool="default",namespace=""} 0
emberline_l2_hit_blocks_total{pool="default",namespace=""} 0
emberline_l2_evicted_blocks_total{pool="default",reason="capacity"} 0
emberline_l2_moved_in_values_total{pool="default",source="handover"} 2
emberline_l2_moved_in_values_total{pool="default",source="rebalance"} 5
"""


NAMESPACES = {
    "namespaces": [
        {"namespace": "small", "bytes": 10, "blocks": 1, "lookups": 4, "hits": 1, "evicted": 0},
        {"namespace": "big", "bytes": 990, "quota_bytes": None},
        "nonsense",
        {"namespace": 7},
    ]
}
CURVE = {
    "capacity_bytes": 4000,
    "requests": 50,
    "points": [
        {"bytes": 2000, "hit_rate": 0.25},
        {"bytes": 8000, "hit_rate": 0.75},
        {"bytes": "x"},
    ],
}
ANSWERS = {
    "/metrics": (200, METRICS),
    "/namespaces": (200, json.dumps(NAMESPACES)),
    "/curve": (200, json.dumps(CURVE)),
}


def test_figures_are_parsed_and_summed() -> None:
    with http_stub(ANSWERS) as node:
        stats = node_stats.fetch_stats(node.url)
    assert stats is not None
    assert (stats.used_bytes, stats.capacity_bytes) == (1000, 4000)
    assert (stats.disk_used_bytes, stats.disk_capacity_bytes) == (70, 700)
    assert [one.namespace for one in stats.namespaces] == ["big", "small"]
    assert stats.curve == node_stats.Curve(4000, 50, ((2000, 0.25), (8000, 0.75)))
    assert node_stats.NodeStats.of_json(json.loads(json.dumps(stats.as_json()))) == stats
    assert (stats.lookups, stats.hits, stats.evictions, stats.moved_in) == (10, 5, 0, 7)
    assert "connections" not in stats.as_json()


@pytest.mark.parametrize("body", ["", "[]", "{", '{"namespaces": 3, "points": 3}', "null"])
def test_malformed_response_affects_only_its_node(body: str) -> None:
    odd = {**ANSWERS, "/namespaces": (200, body), "/curve": (200, body)}
    with http_stub(odd) as node:
        stats = node_stats.fetch_stats(node.url)
    assert stats is not None
    assert (stats.used_bytes, stats.namespaces, stats.curve) == (1000, (), None)


def test_figures_of_an_older_console_are_parsed() -> None:
    assert node_stats.NodeStats.of_json({"used_bytes": 5.0, "gone": 1}).used_bytes == 5.0


def test_node_without_a_valid_response_has_no_figures() -> None:
    with http_stub({"/metrics": (500, METRICS)}) as node:
        assert node_stats.fetch_stats(node.url) is None
    assert node_stats.fetch_stats(node.url) is None, "nobody listens there any more"
    assert node_stats.fetch_stats("not a url") is None


def test_gets_are_not_counted_where_blocks_are_looked_up_first() -> None:
    looked_up_first = METRICS.replace('namespace=""} 0', 'namespace="a"} 40', 1)
    stats = node_stats.parse_metrics(looked_up_first)
    assert (stats.lookups, stats.hits) == (40, 0)


def test_missing_counter_gives_no_figure() -> None:
    stats = node_stats.parse_metrics('emberline_l2_used_bytes{pool="default"} 1')
    assert (stats.lookups, stats.hits) == (None, None)
