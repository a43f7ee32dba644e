"""Examples for the OpenAPI document; a test sends those of requests."""

from __future__ import annotations

from typing import Final

from drf_spectacular.utils import OpenApiExample

NEW_ENDPOINT: Final = [
    OpenApiExample(
        "The least",
        value={"name": "chat", "model": "smollm2-135m-instruct"},
        request_only=True,
    ),
    OpenApiExample(
        "Two workers which share a warm cache",
        value={
            "name": "documents",
            "model": "smollm2-135m-instruct",
            "replicas": 2,
            "cache": {"l1": {"enabled": True, "size_gib": 0.5}},
            "routing": {"enabled": True, "strategy": "kvaware"},
        },
        request_only=True,
    ),
]
