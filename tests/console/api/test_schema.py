"""Start-up of the API's schema classes."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiSerializerExtension

from console.api.schema import load_extensions


def test_extensions_are_imported_before_requests_share_them() -> None:
    """drf-spectacular replaces the dotted path of an extension's target on first use, unlocked."""

    class Late(OpenApiSerializerExtension):
        target_class: Any = "console.api.serializers.ErrorSerializer"

    try:
        load_extensions()
        assert not [one for one in Late._registry if isinstance(one.target_class, str)]
    finally:
        Late._registry.remove(Late)
