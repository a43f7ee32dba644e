"""Prometheus text format, compared with Prometheus' own parser and clients."""

from __future__ import annotations

import pytest

from console.processkit.metrics import Registry


def test_counters_and_gauges() -> None:
    registry = Registry()
    registry.counter("a_total", "How many.", kind="x").add()
    registry.counter("a_total", "How many.", kind="x").add(2)
    registry.counter("a_total", "How many.", kind="y")
    registry.gauge("b", "Back\\slash\nand line.").set(-1.5)
    assert registry.render() == (
        "# HELP a_total How many.\n"
        "# TYPE a_total counter\n"
        'a_total{kind="x"} 3.0\n'
        'a_total{kind="y"} 0.0\n'
        "# HELP b Back\\\\slash\\nand line.\n"
        "# TYPE b gauge\n"
        "b -1.5\n"
    )


def test_histograms_are_cumulative_and_bounds_belong_below() -> None:
    registry = Registry()
    histogram = registry.histogram("h", "Sizes.", (1.0, 2.5, 1e6))
    for value in (0.5, 1.0, 1.1, 2.5, 3e6):
        histogram.observe(value)
    assert registry.render().splitlines()[2:] == [
        'h_bucket{le="1.0"} 2.0',
        'h_bucket{le="2.5"} 4.0',
        'h_bucket{le="1e+06"} 4.0',
        'h_bucket{le="+Inf"} 5.0',
        "h_count 5.0",
        "h_sum 3.0000051e+06",
    ]


def test_label_values_are_escaped() -> None:
    registry = Registry()
    registry.gauge("g", "", path='a"b\\c\nd')
    assert 'g{path="a\\"b\\\\c\\nd"} 0.0\n' in registry.render()


def test_metric_name_has_one_type() -> None:
    registry = Registry()
    registry.counter("x", "")
    with pytest.raises(ValueError, match="is a counter"):
        registry.gauge("x", "")
