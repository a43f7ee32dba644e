"""Distribution of blocks, and recognition of changes of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cachetier.client.placement import REBALANCING_S
from cachetier.tier.balance import find_rebalancing, imbalance, share_of

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)


@dataclass
class Row:
    index: int
    age_s: float
    state: str = "ready"
    was_restarted: bool = False
    stats: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"cache-{self.index}"

    @property
    def started_at(self) -> datetime:
        return NOW - timedelta(seconds=self.age_s)

    @property
    def last_restart_at(self) -> datetime | None:
        return self.started_at if self.was_restarted else None


def test_shares_and_imbalance() -> None:
    assert share_of(30.0, [30.0, 10.0, None]) == 0.75
    assert share_of(None, [30.0, None]) is None
    assert share_of(0.0, [0.0, 0.0]) is None
    assert imbalance([30.0, 10.0]) == 1.5
    assert imbalance([30.0, None]) is None
    assert imbalance([0.0, 0.0]) is None


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], None),
        ([Row(0, 20), Row(1, 5)], None),  # a new tier
        ([Row(0, 9000), Row(1, 9000)], None),
        ([Row(0, 9000), Row(1, REBALANCING_S + 1)], None),
        ([Row(0, 9000), Row(1, 60)], ("cache-1", "NodeJoined")),
        ([Row(0, 60, was_restarted=True), Row(1, 9000)], ("cache-0", "NodeReturned")),
        ([Row(0, 9000), Row(1, 60, state="starting")], None),
        ([Row(0, 9000), Row(1, 9000), Row(2, 60)], ("cache-2", "NodeLeaving")),
    ],
)
def test_changes_of_nodes_are_recognized(rows: list[Row], expected: Any) -> None:
    found = find_rebalancing(rows, 2, NOW)
    assert (found and (found.node, found.reason)) == expected
    assert not found or found.node in found.message


def test_window_begins_with_the_node() -> None:
    found = find_rebalancing([Row(0, 9000), Row(1, 60)], 2, NOW)
    assert found is not None
    assert found.since == NOW - timedelta(seconds=60)
    assert found.until == found.since + timedelta(seconds=REBALANCING_S)
