"""Queries that users write: which select everything, and how series are counted."""

from __future__ import annotations

import pytest

from dashboards.prometheus.http.user_query import find_unselective


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ('{__name__=~".+"}', '{__name__=~".+"}'),
        ('sum(rate({__name__=~".*"}[5m])) > 1', '{__name__=~".*"}'),
        ('up == 0 or {job="vllm"} > 1', '{job="vllm"}'),
        ('a / on (x) group_left (y) {b!=""}', '{b!=""}'),
        ('up and {a=~".+"}', '{a=~".+"}'),
        ('{__name__!="up"}', '{__name__!="up"}'),
        ("{__name__=~`vllm:x|.*`}", "{__name__=~`vllm:x|.*`}"),
        ('{"__name__"=~".+"}', '{"__name__"=~".+"}'),
        ('{__name__=""}', '{__name__=""}'),
        ('{a="__name__", b="vllm:x"}', '{a="__name__",b="vllm:x"}'),
        ("{", "{}"),
        # Selectors with a metric name.
        ("up", ""),
        ('up{job="x"} > 1', ""),
        ('rate(a:b_total{c=~".+"}[5m]) unless on (a) y {z="1"}', ""),
        ('{__name__="up"}', ""),
        ('{job="x", __name__=~"vllm:.+|emberline_router_.+"}', ""),
        ('{__name__=~"(?:vllm|emberline_).*"}', ""),
        ('{"a.metric", job="x"}', ""),
        ('label_replace(up, "a", "{x}", "b", "{") > 0 # {job="x"}', ""),
    ],
)
def test_selectors_without_a_metric_name_are_found(condition: str, found: str) -> None:
    assert find_unselective(condition) == found
