"""REST of recorded traffic: hours, export, import, deletion."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from bench.fleet.workloads import TRACE, shared_folder
from console.audit import selectors as audit
from dashboards.insight.traces.storage import add_pieces, load_imported
from endpoints.models import Endpoint
from tests.dashboards.insight.traces.test_storage import NOW, URL, reply
from tests.support.console import make_endpoint, program

pytestmark = pytest.mark.django_db
PATH = "/api/v1/endpoints/demo/traces/"
ROW = b'{"timestamp": 5, "input_length": 700, "output_length": 9, "hash_ids": [0, 7]}\n'
HOURS = {"begin": NOW.isoformat(), "end": (NOW + timedelta(hours=2)).isoformat()}


@pytest.fixture
def endpoint() -> Endpoint:
    made = make_endpoint()
    add_pieces(made, URL, reply("r1", [1, 30, 3601]), NOW)
    return made


async def whole(parts: Any) -> bytes:
    return b"".join([part async for part in parts])


def lines(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.content
    text = async_to_sync(whole)(answer.streaming_content)
    return [json.loads(line) for line in text.splitlines()]


def imported(data: bytes, query: str = "name=one", role: str = "operator") -> Any:
    return program(role).generic(
        "POST", f"{PATH}imports/?{query}", data, content_type="application/x-ndjson"
    )


def test_hours_are_listed_exported_and_deleted(endpoint: Endpoint) -> None:
    found = program("viewer").get(PATH).json()
    assert (found["recording"], found["record_days"], found["record_mib"]) == (False, 7, 256)
    assert [hour["requests"] for hour in found["hours"]] == [1, 2]
    assert found["hours"][1]["hit_rate"] == 0.25
    rows = lines(program("operator").get(f"{PATH}export/", HOURS))
    assert [row["timestamp"] for row in rows] == [1000, 30_000, 3_601_000]
    rows = lines(
        program("operator").get(
            f"{PATH}export/", {**HOURS, "trace_format": "dynamo", "block_tokens": 64}
        )
    )
    assert [len(row["hash_ids"]) for row in rows] == [7, 7, 7]
    assert lines(program("operator").get(f"{PATH}export/", {**HOURS, "trace_format": "agentic"}))
    deleted = program("operator").delete(f"{PATH}?begin={NOW:%Y-%m-%dT%H:00Z}")
    assert deleted.status_code == 400
    query = "&".join(f"{key}={value.replace('+', '%2B')}" for key, value in HOURS.items())
    assert program("operator").delete(f"{PATH}?{query}").json() == {"deleted_hours": 2}
    assert program("viewer").get(PATH).json()["hours"] == []
    verbs = [event.verb for event in audit.events_visible_to(None).filter(target="endpoint/demo")]
    assert verbs.count("trace.export") == 3
    assert verbs.count("recording.delete") == 1


def test_a_file_is_imported_and_exported_again(endpoint: Endpoint) -> None:
    with (shared_folder() / TRACE).open("rb") as file:
        data = b"".join(file.readlines()[:500])
    answer = imported(gzip.compress(data))
    assert answer.status_code == 201, answer.content
    shown = answer.json()
    assert (shown["name"], shown["requests"], shown["sessions"]) == ("one", 500, 0)
    rows = lines(program("operator").get(f"{PATH}export/?name=one"))
    assert rows == [json.loads(line) for line in data.splitlines()]
    assert len(load_imported(endpoint, "one").requests) == 500
    assert imported(ROW).json()["detail"].startswith("There is already an imported trace one.")
    assert program("operator").delete(f"{PATH}imports/one/").status_code == 204
    assert program("operator").delete(f"{PATH}imports/one/").status_code == 400
    assert program("viewer").get(PATH).json()["imports"] == []


@pytest.mark.parametrize(
    ("data", "query", "field", "message"),
    [
        (ROW, "name=%20", "name", "Invalid name."),
        (ROW, "name=x&trace_format=vllm", "trace_format", ""),
        (ROW, "name=x&trace_format=agentic", "file", "Line 1: requests is no list."),
        (ROW + b"[]", "name=x", "file", "Line 2 is no JSON object."),
        (b"", "name=x", "file", "The file has 0 requests."),
        (gzip.compress(ROW, mtime=0)[:-4], "name=x", "file", "The gzip file is cut."),
        (b"\x1f\x8b\x00", "name=x", "file", "The gzip file is cut."),
        (b"\xff\xfe\n", "name=x", "file", "Line 1 is not JSON"),
        (ROW, "name=x&block_tokens=7", "file", "Mooncake has blocks of 512 tokens."),
    ],
)
def test_bad_files_are_rejected_with_a_remedy(
    endpoint: Endpoint, data: bytes, query: str, field: str, message: str
) -> None:
    answer = imported(data, query)
    assert answer.status_code == 400
    assert answer.json()["field"] == field
    assert answer.json()["detail"].startswith(message)
    assert answer.json()["remedy"]


@pytest.mark.parametrize(
    "query",
    [{}, {"begin": HOURS["end"], "end": HOURS["begin"]}, {"begin": "x"}, {"name": "absent"}],
)
def test_exports_of_nothing_are_rejected(endpoint: Endpoint, query: dict[str, str]) -> None:
    assert program("operator").get(f"{PATH}export/", query).status_code == 400


def test_viewers_read_totals_only(endpoint: Endpoint) -> None:
    assert program("viewer").get(f"{PATH}export/", HOURS).status_code == 403
    assert imported(ROW, role="viewer").status_code == 403
    assert program("viewer").delete(f"{PATH}?begin=2026-01-01T00:00Z").status_code == 403
    assert program("viewer").delete(f"{PATH}imports/one/").status_code == 403
