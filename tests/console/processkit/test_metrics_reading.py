from __future__ import annotations

from console.processkit.metrics import MetricSample, parse_samples, total

TEXT = """\
# HELP vllm:x_total what it counts
# TYPE vllm:x_total counter
vllm:x_total{engine="0",source="host"} 12.0
vllm:x_total{engine="0",source="disk"} 3 1700000000000
vllm:other 1e3
plain 5
odd{path="a\\\\b\\"c\\nd",b="}"} +Inf
this is not a sample {
nonsense{a="b"} twelve
"""


def test_parser_reads_names_labels_values_and_timestamps() -> None:
    samples = parse_samples(TEXT)
    assert samples[0] == MetricSample("vllm:x_total", {"engine": "0", "source": "host"}, 12.0)
    assert [sample.name for sample in samples] == [
        "vllm:x_total",
        "vllm:x_total",
        "vllm:other",
        "plain",
        "odd",
    ]


def test_escapes_inside_a_label_are_decoded() -> None:
    (odd,) = parse_samples(TEXT, "odd")
    assert odd.labels == {"path": 'a\\b"c\nd', "b": "}"}
    assert odd.value == float("inf")


def test_absent_metric_is_not_zero() -> None:
    samples = parse_samples(TEXT, "vllm:")
    assert total(samples, "vllm:x_total") == 15.0
    assert total(samples, "vllm:x_total", source="disk") == 3.0
    assert total(samples, "vllm:x_total", source="device") is None
    assert total(samples, "plain") is None
