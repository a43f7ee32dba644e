"""Verdicts on common machines, each with a working fix."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from endpoints.fit.estimate import GIB, Fit, FitVerdict, Machine, WorkerRequirements, estimate
from endpoints.fit.model_catalogue import find_shape

A10G = Machine("ml.g5.8xlarge", "A10G", 1, int(22.5 * GIB), 128 * GIB, 32)
FOUR_A10G = Machine("ml.g5.12xlarge", "A10G", 4, int(22.5 * GIB), 192 * GIB, 48)
H100 = Machine("ml.p5.48xlarge", "H100", 8, int(79.6 * GIB), 2048 * GIB, 192)


def fit(model: str, machine: Machine | None, **requirements: Any) -> Fit:
    return estimate(
        find_shape(model), machine, WorkerRequirements(**{"memory_bytes": 24 * GIB, **requirements})
    )


def codes(found: Fit) -> list[str]:
    return [finding.code for finding in found.findings]


def test_eight_billion_on_one_a10g_with_a_short_context() -> None:
    """The reference's own sample: --max-model-len 4096 on ml.g5.8xlarge."""
    found = fit("llama-3.1-8b", A10G, max_context=4096)
    assert found.verdict is FitVerdict.FITS
    assert 10_000 < found.capacity_tokens < 40_000
    assert found.concurrency == pytest.approx(found.capacity_tokens / 4096)
    assert found.workers_per_machine == 1


def test_full_context_does_not_fit_and_the_remedy_does() -> None:
    found = fit("llama-3.1-8b", A10G)
    assert found.verdict is FitVerdict.DOES_NOT_FIT
    assert codes(found) == ["context_does_not_fit"]
    advised = re.search(r"--max-model-len=(\d+)", found.findings[0].remedy)
    assert advised is not None
    again = fit("llama-3.1-8b", A10G, max_context=int(advised[1]))
    assert again.verdict is FitVerdict.TIGHT
    assert codes(again) == ["few_at_once"]


def test_seventy_billion_need_more_gpus_and_the_remedy_states_the_number() -> None:
    found = fit("llama-3.1-70b", H100, max_context=8192)
    assert found.verdict is FitVerdict.DOES_NOT_FIT
    assert found.findings[0].field == "resources.gpus"
    assert found.findings[0].remedy == "Use 2 GPUs per worker."
    again = fit("llama-3.1-70b", H100, max_context=8192, tensor=2)
    assert again.verdict is FitVerdict.FITS
    assert again.workers_per_machine == 4
    assert again.capacity_tokens < fit("llama-3.1-70b", H100, tensor=4).capacity_tokens / 5


def test_no_number_of_small_gpus_holds_seventy_billion() -> None:
    found = fit("llama-3.1-70b", FOUR_A10G, tensor=4, max_context=4096)
    assert found.verdict is FitVerdict.DOES_NOT_FIT
    assert "larger instance type" in found.findings[0].remedy


def test_fp8_is_recommended_where_it_is_sufficient() -> None:
    found = fit("qwen2.5-14b", A10G, max_context=4096)
    assert found.verdict is FitVerdict.DOES_NOT_FIT
    assert "--quantization=fp8" in found.findings[0].remedy
    assert fit("qwen2.5-14b", A10G, max_context=4096, quantization="fp8").verdict in (
        FitVerdict.FITS,
        FitVerdict.TIGHT,
    )


@pytest.mark.parametrize(
    ("requirements", "code"),
    [
        ({"tensor": 16}, "does_not_fit"),
        ({"tensor": 3}, "uneven_heads"),
        ({"tensor": 8, "max_context": 200_000}, "context_too_long"),
        ({"tensor": 8, "l1_bytes": 3000 * GIB}, "over_capacity"),
    ],
)
def test_impossible_starts_are_blocked(requirements: dict[str, Any], code: str) -> None:
    found = fit("llama-3.1-70b", H100, **requirements)
    assert found.verdict is FitVerdict.DOES_NOT_FIT
    assert code in [finding.code for finding in found.blocking]
    assert all(finding.remedy for finding in found.findings)


def test_l1_that_leaves_gpus_empty_is_a_warning() -> None:
    requirements: dict[str, Any] = {"max_context": 4096, "l1_bytes": 100 * GIB}
    found = fit("llama-3.1-8b", FOUR_A10G, **requirements)
    assert found.verdict is FitVerdict.TIGHT
    assert codes(found) == ["gpus_left_empty"]
    advised = int(re.findall(r"at most (\d+) GiB", found.findings[0].remedy)[0])
    assert (
        fit("llama-3.1-8b", FOUR_A10G, **{**requirements, "l1_bytes": advised * GIB}).findings == ()
    )


def test_on_a_cpu_memory_holds_weights_and_kv() -> None:
    shape = find_shape("smollm2-135m")
    requirements = WorkerRequirements(
        on_cpu=True, dtype="float32", kv_each=4, memory_bytes=4 * GIB, kv_bytes=GIB // 2,
        max_context=4096,
    )  # fmt: skip
    found = estimate(shape, A10G, requirements)
    assert found.verdict is FitVerdict.FITS
    assert found.capacity_tokens == GIB // 2 // (2 * 30 * 3 * 64 * 4) // 16 * 16
    small = estimate(shape, A10G, replace(requirements, memory_bytes=GIB, kv_bytes=GIB // 8))
    assert small.verdict is FitVerdict.DOES_NOT_FIT
    assert {finding.field for finding in small.findings} >= {"resources.memory_gib"}


@pytest.mark.parametrize(("model", "machine"), [("nobody/knows", A10G), ("llama-3.1-8b", None)])
def test_unknown_values_are_not_judged(model: str, machine: Machine | None) -> None:
    found = fit(model, machine)
    assert found.verdict is FitVerdict.UNKNOWN
    assert not found.blocking
    assert found.findings[0].remedy
