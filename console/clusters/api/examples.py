"""Examples for the OpenAPI document; a test sends those of requests."""

from __future__ import annotations

from typing import Final

from drf_spectacular.utils import OpenApiExample

NEW_CLUSTER: Final = [
    OpenApiExample(
        "The cluster this console runs in",
        value={"name": "here", "kind": "in-cluster", "namespace": "models", "reach": "pods"},
        request_only=True,
    )
]
