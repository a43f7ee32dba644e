"""The node's workload, its phase table and its numbers: pure, or over a real socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachetier import node_stats
from cachetier.lifecycle import judge
from cachetier.node_spec import NodeFacts, node_spec
from console.provisioners.base import Observation, ReplicaObservation, ReplicaState
from console.provisioners.checks import check_spec
from tests.support.http_stub import http_stub

FACTS = NodeFacts("default", 2**30, Path("/var/secrets/l2_password"))


def test_the_spec_is_what_the_engine_takes() -> None:
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
        "1073741824",
        "--password-file",
        "/var/secrets/l2_password",
        "--admin",
        "{host}:{port:admin}",
    )
    assert (spec.probe.path, spec.probe.port) == ("/healthz", "admin")
    assert spec.memory_bytes > FACTS.capacity_bytes


def test_another_size_is_another_spec() -> None:
    assert (
        node_spec(FACTS).spec_hash
        != node_spec(NodeFacts("default", 2**29, FACTS.password_file)).spec_hash
    )


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
    verdict = judge(seen, "new", wanted=1, was_ready=was_ready, deleting=False)
    assert (verdict.phase, verdict.reason) == (phase, reason)


def test_deleting_wins_over_everything() -> None:
    verdict = judge(node(ReplicaState.READY), "new", wanted=1, was_ready=True, deleting=True)
    assert verdict.phase == "Deleting"


METRICS = """\
emberline_l2_used_bytes{pool="default",medium="memory"} 1000
emberline_l2_capacity_bytes{pool="default",medium="memory"} 4000
emberline_l2_operations_total{pool="default",op="get",result="hit"} 5
emberline_l2_operations_total{pool="default",op="get",result="miss"} 5
emberline_l2_operations_total{pool="default",op="put",result="ok"} 9
emberline_l2_lookup_blocks_total{pool="default",namespace=""} 0
emberline_l2_hit_blocks_total{pool="default",namespace=""} 0
emberline_l2_evicted_blocks_total{pool="default",reason="capacity"} 0
"""


def test_numbers_are_read_and_summed() -> None:
    with http_stub({"/metrics": (200, METRICS)}) as node:
        stats = node_stats.ask(node.url)
    assert stats is not None
    assert (stats.used_bytes, stats.capacity_bytes) == (1000, 4000)
    assert (stats.lookups, stats.hits, stats.evictions) == (10, 5, 0)
    assert "connections" not in stats.as_json()


def test_a_node_that_does_not_answer_well_has_no_numbers() -> None:
    with http_stub({"/metrics": (500, METRICS)}) as node:
        assert node_stats.ask(node.url) is None
    assert node_stats.ask(node.url) is None, "nobody listens there any more"
    assert node_stats.ask("not a url") is None


def test_where_blocks_are_asked_for_first_gets_alone_do_not_count() -> None:
    asked_first = METRICS.replace('namespace=""} 0', 'namespace="a"} 40', 1)
    stats = node_stats.read(asked_first)
    assert (stats.lookups, stats.hits) == (40, 0)


def test_a_node_without_any_such_counter_has_no_number() -> None:
    stats = node_stats.read('emberline_l2_used_bytes{pool="default"} 1')
    assert (stats.lookups, stats.hits) == (None, None)
