"""Every named request example of the OpenAPI document about new objects is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from console.api.schema import build_document
from tests.support.console import program

pytestmark = pytest.mark.django_db
METHODS = ("post", "put", "patch")


def shown() -> Iterator[Any]:
    """(method, path, body)."""
    for path, item in build_document()["paths"].items():
        if "{" in path:
            continue
        for method in METHODS:
            content = item.get(method, {}).get("requestBody", {}).get("content", {})
            examples = content.get("application/json", {}).get("examples", {})
            for name, example in examples.items():
                yield pytest.param(method, path, example["value"], id=f"{method} {path} {name}")


@pytest.mark.parametrize(("method", "path", "body"), list(shown()))
def test_example_is_accepted(method: str, path: str, body: Any) -> None:
    answer = getattr(program("admin"), method)(path, body)
    assert 200 <= answer.status_code < 300, answer.content


def test_common_objects_have_examples() -> None:
    paths = {case.values[1] for case in shown()}
    assert paths >= {"/api/v1/endpoints/", "/api/v1/cache-tiers/", "/api/v1/clusters/"}
