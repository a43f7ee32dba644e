"""The OpenAPI document: made once for a process, for it says what the code is.

Promises the same bytes wherever it is made, so that the one kept in docs/ can be compared.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.conf import settings
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer


def document() -> dict[str, Any]:
    return _made(str(settings.ROOT_URLCONF))


def as_yaml() -> str:
    """As it is kept."""
    return str(OpenApiYamlRenderer().render(document(), renderer_context={}).decode())


@lru_cache(maxsize=4)
def _made(_urls: str) -> dict[str, Any]:
    found: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return found
