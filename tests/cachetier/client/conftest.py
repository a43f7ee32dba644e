"""Cache servers for client tests: our node and a real Valkey, with a password."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cachenode import CacheNode, Valkey

PASSWORD = "open sesame"


@pytest.fixture(scope="session", params=["emberline", "valkey"])
def cache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CacheNode | Valkey]:
    folder = tmp_path_factory.mktemp(request.param)
    kind = CacheNode if request.param == "emberline" else Valkey
    one = kind(folder, password=PASSWORD)
    yield one
    one.stop()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[CacheNode]:
    """Our node alone, without a password, for tests which end it."""
    one = CacheNode(tmp_path)
    yield one
    if one.process.poll() is None:
        one.kill()
