"""A generated month is accepted by Prometheus and its counters grow."""

from __future__ import annotations

from pathlib import Path

from bench import month

HOUR = month.Fleet(endpoints=2, workers=1, days=0, fine_hours=1)


def test_prometheus_makes_blocks_of_it(tmp_path: Path) -> None:
    series, size = month.write(HOUR, tmp_path)
    assert series > 200
    assert size > 10_000
    assert list((tmp_path / "data").glob("*/index"))
    assert not list(tmp_path.glob("*.om")), "a page of many gigabytes is left"


def test_counters_never_fall() -> None:
    loads = [month.load(moment, 0) for moment in range(0, 2 * month.DAY_S, 60)]
    assert loads == sorted(loads)
    assert loads[-1] > 2 * 1400


def test_an_exporters_own_labels_stay() -> None:
    assert month.join_labels('namespace="a"', 'job="l2",namespace="b"') == 'namespace="a",job="l2"'
