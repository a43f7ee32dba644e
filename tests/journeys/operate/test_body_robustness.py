"""No JSON body, whatever its types, makes an operation fail with an internal error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import transaction

from console.api.access import CallerThrottle
from console.api.schema import build_document
from tests.support.console import program
from tests.support.furnished.fixtures import VISITED

WRONG: tuple[Any, ...] = ([[]], {"a": {"b": "\0"}}, "\0", 1e308, True, None)
BODIES: tuple[Any, ...] = (1, "x", None, [[]], {}, {"\0": [1]})


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(method, path, schema of the body)."""
    document = build_document()
    for path, item in document["paths"].items():
        for method in ("post", "put", "patch"):
            content = item.get(method, {}).get("requestBody", {}).get("content", {})
            if "application/json" in content:
                schema = content["application/json"]["schema"]
                name = schema.get("$ref", "").rpartition("/")[2]
                yield method, path, document["components"]["schemas"].get(name, schema)


def fill(path: str) -> str:
    """Return the path of an existing object."""
    kinds = {"budget_id": VISITED, "board_id": VISITED, "route": VISITED, "rule": "HighTTFT"}
    return re.sub(r"{(\w+)}", lambda named: str(kinds.get(named[1], "demo")), path)


def bodies(schema: dict[str, Any]) -> Iterator[Any]:
    yield from BODIES
    for name in schema.get("properties", {}):
        for value in WRONG:
            yield {name: value}


@pytest.mark.usefixtures("furnished")
def test_wrong_types_are_refused_not_failed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallerThrottle, "get_cache_key", lambda *_: None)
    client = program("admin")
    client.raise_request_exception = False
    failed, count = [], 0
    for method, path, schema in operations():
        for body in bodies(schema):
            with transaction.atomic():
                answer = getattr(client, method)(fill(path), body, format="json")
                transaction.set_rollback(True)
            count += 1
            assert answer.status_code != 429
            if answer.status_code == 500:
                failed.append(f"{method} {path} {body!r}")
    assert failed == []
    assert count > 1000
