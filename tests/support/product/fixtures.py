"""Products with simulated workers and with real vLLM, each started once by `make up`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.product.product import Product, checkout


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    yield from _product(tmp_path_factory.mktemp("simulated"), "simulated")


@pytest.fixture(scope="module")  # stopped before other tests start real workers
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    yield from _product(tmp_path_factory.mktemp("real"), "vllm")


def _product(folder: Path, workers: str) -> Iterator[Product]:
    product = Product(checkout(folder / "emberline"), workers)
    if workers == "vllm":
        product.lend_vllm()
    try:
        product.up()
        product.token = product.make_token()
        yield product
    finally:
        product.down()
        left = product.processes()
        assert not left, f"left behind by make down: {[p.cmdline() for p in left]}"
