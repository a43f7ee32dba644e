"""The OpenAPI document: made once for a process, for it says what the code is."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.conf import settings
from drf_spectacular.generators import SchemaGenerator


def document() -> dict[str, Any]:
    return _made(str(settings.ROOT_URLCONF))


@lru_cache(maxsize=4)
def _made(_urls: str) -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return found
