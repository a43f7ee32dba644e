from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.cachenode import CacheNode

Start = Callable[..., CacheNode]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts nodes that are gone after the test."""
    nodes: list[CacheNode] = []

    def one(*flags: str, **options: str) -> CacheNode:
        nodes.append(CacheNode(tmp_path, *flags, **options))
        return nodes[-1]

    yield one
    for node in nodes:
        if node.process.poll() is None:
            node.kill()
