"""Concurrent changes with one ETag, and concurrent deletions."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from console.audit.models import AuditEvent
from tests.support.console import person, program

API = "/api/v1/"
CALLERS, ROUNDS = 4, 6


def send_at_once(method: str, path: str, bodies: list[Any], etag: str = "*") -> list[int]:
    """Return the status codes of these requests, sent together."""
    together, codes = threading.Barrier(len(bodies)), []

    def send(body: Any) -> None:
        try:
            client = program("admin")
            together.wait(60)
            request = getattr(client, method)
            codes.append(request(path, body, format="json", headers={"If-Match": etag}).status_code)
        finally:
            connection.close()

    threads = [threading.Thread(target=send, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return sorted(codes)


@pytest.mark.parametrize(
    ("method", "path", "field", "kind", "created"),
    [
        ("put", "instance-types/own.large/", "vcpus", int, {"vcpus": 900, "memory_gib": 8}),
        ("put", "tier-prices/default/", "usd_hour", float, {"usd_hour": 900}),
        ("patch", "alert-rules/HighTTFT/", "threshold", float, {"threshold": 900}),
        ("patch", "teams/blue/", "description", str, {"name": "Blue", "slug": "blue"}),
    ],
)
@pytest.mark.django_db(transaction=True)
def test_one_of_concurrent_changes_takes_place(
    method: str, path: str, field: str, kind: type, created: dict[str, Any]
) -> None:
    person("admin")
    if path.startswith("teams/"):
        program("admin").post(f"{API}teams/", created, format="json")
    else:
        getattr(program("admin"), method)(API + path, created, format="json")
    for number in range(ROUNDS):
        numbers = range(1 + number * CALLERS, 1 + (number + 1) * CALLERS)
        bodies = [{field: kind(value)} for value in numbers]
        etag = program("admin").get(API + path).headers["ETag"]
        assert send_at_once(method, API + path, bodies, etag) == [200, 412, 412, 412]


@pytest.mark.django_db(transaction=True)
def test_one_of_concurrent_deletions_takes_place_and_is_recorded() -> None:
    person("admin")
    client = program("admin")
    for _ in range(ROUNDS):
        size = {"vcpus": 4, "memory_gib": 8}
        client.put(f"{API}instance-types/own.large/", size, format="json")
        budget = {"name": "all", "usd": 5, "whose": "all"}
        made = client.post(f"{API}budgets/", budget, format="json").json()
        for path in ("instance-types/own.large/", f"budgets/{made['id']}/"):
            assert send_at_once("delete", API + path, [None] * CALLERS) == [204, 404, 404, 404]
    assert AuditEvent.objects.filter(verb__endswith="delete").count() == 2 * ROUNDS


@pytest.mark.django_db
def test_missing_row_matches_no_etag() -> None:
    client = program("admin")
    headers = {"If-Match": '"0123456789abcdef"'}
    answer = client.put(
        f"{API}instance-types/none.large/", {"vcpus": 1}, format="json", headers=headers
    )
    assert (answer.status_code, answer.json()["code"]) == (412, "stale")
