"""Commands of the console's programs."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from console import programs
from console.core.environment import SettingError
from console.core.request_log import JsonFormatter

ROOT = Path(__file__).resolve().parents[2]


def argv(name: str, **env: str) -> str:
    return " ".join(programs.command(name, env))


def test_web_listens_on_the_configured_address() -> None:
    assert "--host 0.0.0.0 --port 8080" in argv(
        "web", EMBERLINE_HOST="0.0.0.0", EMBERLINE_PORT="8080"
    )
    assert "--no-proxy-headers" in argv("web")
    assert "--no-proxy-headers" not in argv("web", EMBERLINE_HTTPS="1")


def test_worker_threads_and_log_levels() -> None:
    assert "--concurrency 8 " in argv("worker")
    assert "--concurrency 3 " in argv("worker", EMBERLINE_WORKER_THREADS="3")
    assert "--loglevel DEBUG" in argv("worker", EMBERLINE_LOG_LEVEL="debug")
    assert "--loglevel WARNING" in argv("beat", EMBERLINE_LOG_LEVEL="debug")
    for wrong in ("0", "many", "9999"):
        with pytest.raises(SettingError, match="EMBERLINE_WORKER_THREADS"):
            argv("worker", EMBERLINE_WORKER_THREADS=wrong)


@pytest.mark.parametrize(
    ("words", "env", "message"),
    [
        (["nothing"], {}, "usage: "),
        ([], {}, "usage: "),
        (["web"], {"EMBERLINE_PORT": "x"}, "EMBERLINE_PORT='x' is invalid"),
    ],
)
def test_failed_exec_is_reported_in_one_line(
    words: list[str], env: dict[str, str], message: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "console.programs", *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(message)
    assert "Traceback" not in done.stderr


def line(record: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormatter().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_any_message_is_one_json_line() -> None:
    record = logging.LogRecord(
        "a.b", logging.WARNING, __file__, 1, 'he said "%s"\nand left é', ("x",), None
    )
    record.created = 1_700_000_000.25
    found = line(record)
    assert found == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "a.b",
        "message": 'he said "x"\nand left é',
        "request_id": "-",
    }


def test_json_line_has_the_exception_and_the_request() -> None:
    try:
        raise ValueError("why")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, __file__, 1, "m", (), sys.exc_info())
    record.request_id = "r-1"
    found = line(record)
    assert found["request_id"] == "r-1"
    assert "ValueError: why" in found["exception"]
