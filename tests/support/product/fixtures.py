"""Products with simulated workers and with real vLLM, each started once by `make up`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.product.product import Product, checkout


@pytest.fixture(scope="session")
def clean_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkout in which the first product prepares the environment; the next one finds it."""
    return checkout(tmp_path_factory.mktemp("product") / "emberline")


@pytest.fixture(scope="session")
def simulated(clean_checkout: Path) -> Iterator[Product]:
    yield from _product(clean_checkout, "simulated")


@pytest.fixture(scope="module")  # stopped before other tests start real workers
def real(clean_checkout: Path) -> Iterator[Product]:
    yield from _product(clean_checkout, "vllm")


def _product(folder: Path, workers: str) -> Iterator[Product]:
    assert not (folder / "var").exists(), "another product runs in this checkout"
    product = Product(folder, workers)
    if workers == "vllm":
        product.lend_vllm()
    try:
        product.up()
        product.token = product.make_token()
        yield product
    finally:
        product.down()
        left = product.processes()
        shutil.rmtree(folder / "var", ignore_errors=True)
        assert not left, f"left behind by make down: {[p.cmdline() for p in left]}"
