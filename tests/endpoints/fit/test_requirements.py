"""From the spec of an endpoint to the estimate, and rejected specs."""

from __future__ import annotations

from typing import Any

import pytest

from endpoints.fit.estimate import GIB, FitVerdict
from endpoints.fit.requirements import flag_values, worker_requirements
from endpoints.placement import capacity_check
from endpoints.spec.endpoint_spec import EndpointSpec, merge, parse

BASE = {
    "name": "chat",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "cache": {"l1": {"size_gib": 10}},
    "resources": {"gpus": 1, "memory_gib": 30, "cpus": 6},
    "placement": {"cluster": "east", "instance_types": ["ml.g5.8xlarge"]},
}


def spec(**changes: Any) -> EndpointSpec:
    return parse(merge(BASE, changes))


def test_flags_in_every_form() -> None:
    args = [
        "-tp",
        "4",
        "--max-model-len=8k",
        "--enable-x",
        "--dtype",
        "auto",
        "--kv_cache_dtype=fp8",
    ]
    assert flag_values(args) == {
        "--tensor-parallel-size": "4",
        "--max-model-len": "8k",
        "--enable-x": "",
        "--dtype": "auto",
        "--kv-cache-dtype": "fp8",
    }


@pytest.mark.parametrize(
    ("text", "tokens"), [("4096", 4096), ("4k", 4000), ("4K", 4096), ("auto", 0), ("-1", 0)]
)
def test_length_is_parsed_as_in_vllm(text: str, tokens: int) -> None:
    assert worker_requirements(spec(worker_args=[f"--max-model-len={text}"])).max_context == tokens


def test_spec_is_converted_to_requirements() -> None:
    found = worker_requirements(
        spec(worker_args=["--kv-cache-dtype=fp8", "--gpu-memory-utilization=0.8"])
    )
    assert (found.tensor, found.kv_each, found.utilization) == (1, 1.0, 0.8)
    assert found.l1_bytes == 10 * GIB
    assert not found.on_cpu
    assert worker_requirements(spec(cache={"l1": {"enabled": False}})).l1_bytes == 0


def test_gpus_from_the_resources_of_a_pod() -> None:
    mine = spec(pod={"resources": {"limits": {"nvidia.com/gpu": "4"}}}, resources={"gpus": 0})
    assert worker_requirements(mine).tensor == 4


@pytest.mark.django_db
def test_gpus_are_divided_among_data_parallel_engines() -> None:
    args = ["-dp", "4", "--pipeline-parallel-size=2", "--max-model-len=4096"]
    large = {"placement": {"instance_types": ["ml.p5.48xlarge"]}, "worker_args": args}
    eight = worker_requirements(spec(**large, resources={"gpus": 8}))
    assert (eight.tensor, eight.pipeline, eight.data) == (1, 2, 4)
    report = capacity_check.check_capacity(spec(**large, resources={"gpus": 8}))
    assert report.best.fit.verdict is FitVerdict.UNKNOWN
    tensor = {**large, "worker_args": [*args, "-tp", "2"]}
    (refused,) = capacity_check.refusals(spec(**tensor, resources={"gpus": 8}))
    assert "16 GPUs" in refused.message


@pytest.mark.django_db
def test_each_instance_type_is_judged_and_one_match_suffices() -> None:
    both = spec(
        placement={"instance_types": ["ml.g5.8xlarge", "ml.p5.48xlarge"]},
        worker_args=["--max-model-len=131072"],
    )
    report = capacity_check.check_capacity(both)
    assert [one.fit.verdict for one in report.judged] == [FitVerdict.DOES_NOT_FIT, FitVerdict.FITS]
    assert report.best.machine == "ml.p5.48xlarge"
    assert report.judged[1].price_usd_hour == 63.296
    assert capacity_check.refusals(both) == []


@pytest.mark.django_db
def test_impossible_requirements_are_rejected_with_numbers_and_a_fix() -> None:
    (refused,) = capacity_check.refusals(spec())
    assert refused.field == "worker_args"
    assert "ml.g5.8xlarge" in refused.message
    assert "131072" in refused.message
    assert "--max-model-len=" in refused.remedy


@pytest.mark.django_db
@pytest.mark.parametrize(
    "changes",
    [
        {"model": "nobody/knows"},
        {"placement": {"instance_types": ["metal.unheard-of"]}},
        {"placement": {"instance_types": []}},
        {"engine": "simulated"},
        {"worker_args": ["--max-model-len=4096"]},
    ],
)
def test_uncertain_fit_is_not_rejected(changes: dict[str, Any]) -> None:
    assert capacity_check.refusals(spec(**changes)) == []


@pytest.mark.django_db
def test_local_shortage_is_reported_to_be_confirmed() -> None:
    local = spec(placement={"cluster": "", "instance_types": []}, resources={"gpus": 0})
    report = capacity_check.check_capacity(local)
    assert report.best.machine == "this machine"
    assert report.best.fit.verdict is FitVerdict.DOES_NOT_FIT, "8 billion parameters in float32"
    assert capacity_check.refusals(local) == []
    assert "resources.memory_gib" in [doubt.field for doubt in capacity_check.doubts(local)]
    assert capacity_check.doubts(spec(engine="simulated", placement={"cluster": ""})) == []


def test_local_folder_defines_its_shape(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text('{"hidden_size": 64}')
    assert capacity_check.model_shape(str(tmp_path)) is None
    (tmp_path / "config.json").write_text(CONFIG)
    (tmp_path / "model.safetensors").write_bytes(bytes(1000))
    found = capacity_check.model_shape(str(tmp_path))
    assert found is not None
    assert (found.layers, found.weight_bytes) == (2, 1000)
    (tmp_path / "config.json").write_text("[")
    assert capacity_check.model_shape(str(tmp_path)) is None


CONFIG = (
    '{"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,'
    ' "intermediate_size": 128, "torch_dtype": "float32"}'
)
