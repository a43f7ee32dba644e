"""Every named request example of the OpenAPI document about new objects is accepted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from console.api.schema import build_document
from tests.support.console import program

pytestmark = pytest.mark.django_db
METHODS = ("post", "put", "patch")


def shown() -> Iterator[tuple[str, str, str, Any]]:
    """(method, path, name, body)."""
    for path, item in build_document()["paths"].items():
        if "{" in path:
            continue
        for method in METHODS:
            content = item.get(method, {}).get("requestBody", {}).get("content", {})
            examples = content.get("application/json", {}).get("examples", {})
            for name, example in examples.items():
                yield method, path, name, example["value"]


def test_examples_are_accepted() -> None:
    """Each in the same console; not by parameters, which every process would collect."""
    client, refused = program("admin"), []
    for method, path, name, body in shown():
        with transaction.atomic():
            answer = getattr(client, method)(path, body)
            transaction.set_rollback(True)
        if not 200 <= answer.status_code < 300:
            refused.append(f"{method} {path} {name}: {answer.content!r}")
    assert refused == []


def test_common_objects_have_examples() -> None:
    paths = {path for _, path, _, _ in shown()}
    assert paths >= {"/api/v1/endpoints/", "/api/v1/cache-tiers/", "/api/v1/clusters/"}
