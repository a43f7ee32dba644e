"""OpenAPI document: extensions at startup, rendering."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.renderers import OpenApiYamlRenderer

from console.api import schema
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


def test_document_is_rendered_once_as_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered, render = [], OpenApiYamlRenderer.render

    def counted(self: OpenApiYamlRenderer, data: Any, *more: Any, **named: Any) -> bytes:
        rendered.append(data)
        return render(self, data, *more, **named)

    monkeypatch.setattr(OpenApiYamlRenderer, "render", counted)
    schema._render_yaml.cache_clear()
    document = schema.build_document()
    texts = {kind().render(document) for kind in (schema.YamlRenderer, schema.PlainYamlRenderer)}
    assert rendered == [document]
    assert [yaml.load(text, yaml.CSafeLoader)["openapi"] for text in texts] == ["3.1.0"]
    for detail in ("first", "second"):  # an error response
        assert schema.YamlRenderer().render({"detail": detail}) == f"detail: {detail}\n".encode()
