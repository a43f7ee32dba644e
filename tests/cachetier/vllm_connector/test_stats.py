"""Connector statistics: initial series, deltas, and removal of departed nodes."""

from __future__ import annotations

import subprocess
import sys
import textwrap

from tests.support.cachenode import ROOT

# vLLM's classes are not here: a stand-in of the same shape, in a process of its own.
_PROGRAM = """
import sys, types
from dataclasses import dataclass, field

class Stats:
    def __init__(self):
        self.counters, self.gauges = {}, {}
    def increase_counter(self, name, value, labels):
        self.counters[name, labels] = self.counters.get((name, labels), 0) + value
    def set_gauge(self, name, value, labels=()):
        self.gauges[name, labels] = value
    def is_empty(self):
        return not self.counters and not self.gauges

compat = types.ModuleType("cachetier.vllm_connector.compat")
compat.OffloadingConnectorStats = Stats
for name in ("OffloadingCounterMetadata", "OffloadingGaugeMetadata", "OffloadingMetricMetadata"):
    setattr(compat, name, lambda **facts: types.SimpleNamespace(labelnames=(), **facts)
            if "labelnames" not in facts else types.SimpleNamespace(**facts))
sys.modules["cachetier.vllm_connector.compat"] = compat
from cachetier.client.node_list import Nodes
from cachetier.client.outcomes import KeyOutcome
from cachetier.client.pool import CachePool
from cachetier.vllm_connector import stats

pool = CachePool(Nodes.parse("redis://127.0.0.1:1,127.0.0.1:2"))
board = types.SimpleNamespace(timed_out=0)
reporter = stats.Reporter(pool, board)
first = reporter.take()
known = stats.metric_definitions()
for name, labels in [*first.counters, *first.gauges]:
    assert len(known[name].labelnames) == len(labels), name
assert {name for name, _ in [*first.counters, *first.gauges]} == set(known)
assert set(first.counters.values()) == {0}
assert first.gauges[stats.NODES, ()] == 2
assert reporter.take() is None, "nothing happened"

outcomes = pool.exists([b"k%d" % i for i in range(20)], 5.0)
assert set(outcomes) == {KeyOutcome.ERROR}
reporter.dropped(3)
board.timed_out = 2
second = reporter.take()
assert second.counters[stats.OPERATIONS, ("lookup", "error")] == 20
by_node = {k[1][0]: v for k, v in second.counters.items() if k[0] == stats.NODE_OPERATIONS}
assert sum(by_node.values()) == 20 and len(by_node) == 2
assert second.counters[stats.DROPPED, ()] == 3
assert second.counters[stats.TIMED_OUT, ()] == 2
for _ in range(3):
    pool.exists([b"k%d" % i for i in range(20)], 5.0)
third = reporter.take()
assert third.gauges[stats.BREAKER, ()] == 1.0
assert third.gauges[stats.NODE_BREAKER, ("127.0.0.1:1",)] == 1.0

pool._members._replace((Nodes.parse("redis://127.0.0.1:2").addresses[0],))
fourth = reporter.take()
assert fourth.gauges[stats.NODE_BREAKER, ("127.0.0.1:1",)] == 0.0
assert fourth.gauges[stats.NODES, ()] == 1
assert reporter.take() is None
pool.close()
print("well")
"""


def test_reported_stats_are_consistent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "well\n", done.stderr
