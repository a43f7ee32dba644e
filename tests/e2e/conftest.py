"""One product with simulated workers and one with real vLLM, each started once by `make up`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.product import Product, checkout


def sign_in(product: Product) -> httpx.Client:
    """A session of the first admin, as a browser has one."""
    client = httpx.Client(base_url=product.url, follow_redirects=True, timeout=30)
    page = client.get("/login/")
    client.post(
        "/login/",
        data={
            "username": "admin",
            "password": product.password,
            "csrfmiddlewaretoken": csrf(page.text),
        },
        headers={"Referer": f"{product.url}/login/"},
    ).raise_for_status()
    return client


def csrf(page: str) -> str:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
    assert found, page[:500]
    return found.group(1)


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    yield from _product(tmp_path_factory.mktemp("simulated"), "simulated")


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    yield from _product(tmp_path_factory.mktemp("real"), "vllm")


def _product(folder: Path, workers: str) -> Iterator[Product]:
    product = Product(checkout(folder / "emberline"), workers)
    try:
        product.up()
        product.token = product.make_token()
        yield product
    finally:
        product.down()
        left = product.processes()
        assert not left, f"left behind by make down: {[p.cmdline() for p in left]}"
