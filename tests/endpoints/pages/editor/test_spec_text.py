"""A spec as YAML and back, with lines."""

from __future__ import annotations

from typing import Any

import pytest

from console.core.errors import Problem
from endpoints.pages.editor import spec_text
from endpoints.spec.endpoint_spec import SpecErrors, flatten, merge, nest, parse


def whole(data: dict[str, Any]) -> dict[str, Any]:
    return merge(
        data,
        {
            "placement": {"cluster": "prod", "tolerations": [{"key": "gpu", "operator": "Exists"}]},
            "pod": {"env": {"A": "yes", "B": "1", "C": "a: b # c"}, "command": ["vllm", "serve"]},
            "scaling": {"enabled": True, "triggers": [{"type": "cpu"}]},
            "tags": {"team": "search"},
            "worker_args": ["--xa={'x': 1}", "--xb"],
        },
    )


def test_written_yaml_parses_back_equal(data: dict[str, Any]) -> None:
    for one in (data, whole(data)):
        spec = parse(one)
        back = spec_text.parse_text(spec_text.to_text(spec.to_dict()))
        assert parse(back.data) == spec


def test_invalid_values_come_back_as_typed(data: dict[str, Any]) -> None:
    typed = nest({**flatten(data), "replicas": "many", "cache.l1.size_gib": "1,5", "name": "-"})
    back = spec_text.parse_text(spec_text.to_text(typed)).data
    assert (back["replicas"], back["cache"]["l1"]["size_gib"]) == ("many", "1,5")


def test_yaml_contains_only_relevant_cluster_fields(data: dict[str, Any]) -> None:
    text = spec_text.to_text(parse(merge(data, {"manifest": {"kind": "K"}})).to_dict())
    assert "placement" not in text
    assert "tags" not in text
    assert "manifest" not in text, "it is kept beside the text"
    assert list(spec_text.parse_text(text).data)[:4] == ["name", "model", "engine", "replicas"]
    flat = parse(data).flat()
    assert "placement" not in spec_text.to_text(nest(flat)), "whole, and all at its default"


def test_each_error_has_its_line() -> None:
    text = "name: demo\nmodel: m\ncache:\n  l1:\n    size_gib: -1\n  l2: {enabled: 3}\n"
    lines = spec_text.parse_text(text).lines

    def refused(path: str) -> Problem:
        return Problem(path, None, "m", "r", "c")

    found = spec_text.locate_errors(
        [refused(p) for p in ("cache.l2.enabled", "cache.l1.size_gib", "replicas", "cache.l1.x")],
        lines,
    )
    assert [(one.line, one.field) for one in found] == [
        (0, "replicas"),
        (4, "cache.l1.x"),
        (5, "cache.l1.size_gib"),
        (6, "cache.l2.enabled"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("name: a\nmodel: [b\nreplicas: 1\n", 3, "cannot be read"),
        ("name: a\nname: b\n", 2, "given twice"),
        ("", 0, "no object"),
        ("- a\n- b\n", 0, "not an object"),
        ("name: a\n---\nname: b\n", 0, "2 objects"),
        ("a: " * 100_000, 0, "characters"),
        (f"a: {'[' * 5000}", 0, ""),
    ],
)
def test_text_that_is_no_spec_is_reported(text: str, line: int, message: str) -> None:
    with pytest.raises(SpecErrors) as refused:
        spec_text.parse_text(text)
    (one,) = spec_text.syntax_errors(refused.value)
    assert message in one.message
    assert one.line == line or not message


def test_cluster_object_is_redirected_to_manifests() -> None:
    text = "apiVersion: inference.sagemaker.aws.amazon.com/v1\nkind: InferenceEndpointConfig\n"
    with pytest.raises(SpecErrors) as refused:
        spec_text.parse_text(text)
    assert "page Import" in refused.value.errors[0].remedy
