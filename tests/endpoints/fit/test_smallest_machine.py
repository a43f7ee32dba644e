"""Smallest machine of a model."""

from __future__ import annotations

from endpoints.fit.estimate import GIB, FitVerdict, Machine
from endpoints.fit.model_catalogue import KNOWN_MODELS, find_shape
from endpoints.fit.smallest_machine import on_cpu, order, smallest

L4 = Machine("l4", "L4", 1, 22 * GIB, 64 * GIB, 16)
L4X4 = Machine("l4x4", "L4", 4, 22 * GIB, 192 * GIB, 48)
H100 = Machine("h100", "H100", 8, 80 * GIB, 2048 * GIB, 192)
CPU = Machine("cpu", "", 0, 0, 16 * GIB, 4)


def test_machines_are_ordered_by_price_then_size() -> None:
    assert order([(9.0, H100), (None, L4X4), (None, L4), (1.0, CPU)]) == (H100, L4, L4X4)


def test_the_first_machine_with_the_full_context_is_taken() -> None:
    shape = find_shape("Qwen/Qwen2.5-32B-Instruct")
    assert shape is not None
    found = smallest(shape, (L4, L4X4, H100))
    assert (found.machine, found.gpus, found.verdict) == ("l4x4", 4, FitVerdict.FITS)
    assert found.context == 32_768


def test_shorter_context_is_preferred_to_none() -> None:
    shape = find_shape("meta-llama/Llama-3.1-8B-Instruct")
    assert shape is not None
    found = smallest(shape, (L4,))
    assert found.verdict is FitVerdict.TIGHT
    assert 4096 <= found.context < shape.max_context
    large = find_shape("meta-llama/Llama-3.1-405B-Instruct")
    assert large is not None
    assert smallest(large, (L4, H100)).verdict is FitVerdict.DOES_NOT_FIT


def test_a_machine_without_gpus() -> None:
    small, large = find_shape("SmolLM2-135M-Instruct"), find_shape("Qwen3-32B")
    assert small is not None
    assert large is not None
    assert on_cpu(small, CPU).verdict is FitVerdict.FITS
    assert on_cpu(large, CPU).verdict is FitVerdict.DOES_NOT_FIT


def test_every_known_model_has_a_shape_and_a_licence() -> None:
    for model in KNOWN_MODELS:
        assert model.shape is not None, model.name
        assert model.licence, model.name
