"""`emberline endpoint traces`: list, switch, export, import, delete."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path

import pytest

from dashboards.insight.traces.storage import add_pieces
from endpoints.models import Endpoint
from tests.console.commandline.test_parser import refused, run
from tests.dashboards.insight.traces.test_api import ROW
from tests.dashboards.insight.traces.test_storage import NOW, URL, reply
from tests.support.console import make_endpoint

pytestmark = pytest.mark.django_db
TRACES = ("endpoint", "traces")
HOUR = ("--begin", NOW.isoformat(), "--end", (NOW + timedelta(hours=1)).isoformat())


@pytest.fixture
def endpoint() -> Endpoint:
    made = make_endpoint()
    add_pieces(made, URL, reply("r1", [1, 30]), NOW)
    return made


def test_hours_are_listed_exported_and_deleted(endpoint: Endpoint, tmp_path: Path) -> None:
    assert "Recording is off. Kept: 7 days, 256 MiB." in run(*TRACES, "list", "demo")
    assert "25.0%" in run(*TRACES, "list", "demo")
    rows = [json.loads(line) for line in run(*TRACES, "export", "demo", *HOUR).splitlines()]
    assert [row["timestamp"] for row in rows] == [1000, 30_000]
    file = tmp_path / "out.jsonl"
    output = run(*TRACES, "export", "demo", *HOUR, "--format", "dynamo", "-f", str(file))
    assert output == f"{file.stat().st_size:,} bytes written to {file}.\n"
    assert len(file.read_bytes().splitlines()) == 2
    code, text = refused(*TRACES, "export", "demo", "-f", str(file))
    assert (code, "No range given." in text) == (3, True)
    assert file.stat().st_size  # it is as it was
    assert run(*TRACES, "delete", "demo", *HOUR, "--yes") == "1 recorded hour deleted.\n"
    assert refused(*TRACES, "delete", "demo", "--yes")[0] == 2


def test_recording_is_switched(endpoint: Endpoint) -> None:
    assert run(*TRACES, "record", "demo", "on") == "Recording of demo is switched on.\n"
    assert "Recording is on." in run(*TRACES, "list", "demo")


def test_a_file_is_imported_and_deleted(endpoint: Endpoint, tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl.gz"
    file.write_bytes(gzip.compress(ROW))
    assert run(*TRACES, "import", "demo", "mine", "-f", str(file)).startswith(
        "Trace mine imported: 1 request."
    )
    assert "mooncake" in run(*TRACES, "list", "demo")
    assert json.loads(run(*TRACES, "export", "demo", "--trace", "mine")) == json.loads(ROW)
    code, text = refused(*TRACES, "import", "demo", "next", "-f", str(file), "--format", "agentic")
    assert (code, "Line 1: requests is no list." in text) == (3, True)
    assert run(*TRACES, "delete", "demo", "--trace", "mine", "--yes") == "Trace mine deleted.\n"
    assert refused(*TRACES, "import", "demo", "x", "-f", str(tmp_path / "absent"))[0] == 2
