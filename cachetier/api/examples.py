"""Examples for the OpenAPI document; a test sends those of requests."""

from __future__ import annotations

from typing import Final

from drf_spectacular.utils import OpenApiExample

NEW_TIER: Final = [
    OpenApiExample(
        "A gigabyte on each of two nodes",
        value={"name": "chat", "memory_bytes": 1073741824, "node_count": 2},
        request_only=True,
    )
]
