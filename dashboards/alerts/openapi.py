"""Parts of the OpenAPI description that the REST views of alerts share."""

from __future__ import annotations

from functools import partial
from typing import Any

from drf_spectacular.utils import extend_schema

from console.api.serializers import ErrorSerializer

described = partial(extend_schema, tags=["alerts"])


def answers(serializer: Any, *refused: int, status: int = 200) -> dict[int, Any]:
    """Return the responses of an operation: its result, and errors with the `refused` statuses."""
    return {status: serializer, **dict.fromkeys(refused, ErrorSerializer)}
