"""Metrics of the simulated worker, compared with those declared by vLLM 0.32.

`vllm_0_32_metrics.json` was taken from vllm/v1/metrics/{loggers,buckets}.py of 0.32.0 for a
context of 2048 tokens: every family it makes without optional features.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulated import SimulatedWorker

REAL = json.loads(Path(__file__).with_name("vllm_0_32_metrics.json").read_text())


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("worker")
    worker = SimulatedWorker(folder, "--max-model-len", "2048", "--l1-bytes", "64MiB")
    worker.complete("before the first scrape", 40)
    yield worker.get("/metrics")[1].decode()
    worker.close()


def samples(text: str, name: str) -> list[dict[str, str]]:
    found = re.findall(rf"^{re.escape(name)}(?:\{{(.*)\}})? \S+$", text, re.MULTILINE)
    return [dict(re.findall(r'(\w+)="([^"]*)"', labels)) for labels in found]


@pytest.mark.parametrize("name", REAL)
def test_metric_family_equals_that_of_vllm(text: str, name: str) -> None:
    real = REAL[name]
    assert f"# TYPE {name} {real['type']}\n" in text
    is_histogram = real["type"] == "histogram"
    found = samples(text, f"{name}_bucket" if is_histogram else name)
    assert found, "the series exist before anything happens"
    expected = {*real["labels"], *(("le",) if is_histogram else ())}
    assert {frozenset(labels) for labels in found} == {frozenset(expected)}
    if is_histogram:
        bounds = [float(labels["le"]) for labels in found]
        assert bounds == [*real["buckets"], float("inf")]
        assert len(samples(text, f"{name}_sum")) == len(samples(text, f"{name}_count")) == 1
    assert all(labels["model_name"] == "demo" for labels in found)


def test_no_vllm_family_is_invented(text: str) -> None:
    """What is not in the list is the KV connector's, or the facts'."""
    named = set(re.findall(r"^# TYPE (vllm:\S+) ", text, re.MULTILINE))
    extra = {name for name in named - set(REAL) if not name.startswith("vllm:kv_offload_")}
    assert extra == {"vllm:cache_config_info"}


def test_worker_is_marked_simulated(text: str) -> None:
    assert "\nemberline_simulated_worker 1.0\n" in text


def test_facts_are_in_cache_config_info(text: str) -> None:
    (facts,) = samples(text, "vllm:cache_config_info")
    assert facts["block_size"] == "32"
    assert facts["num_gpu_blocks"] == "2048"


def test_http_requests_are_counted_without_probes_and_scrapes(text: str) -> None:
    assert samples(text, "http_requests_total") == [
        {"handler": "/v1/completions", "method": "POST", "status": "2xx"}
    ]
