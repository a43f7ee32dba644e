"""When a target last answered, evaluated by promtool."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dashboards.boards.queries import Scope
from dashboards.boards.results import targets
from tests.support.prometheus import PROMTOOL


@pytest.mark.parametrize(
    ("up", "end_s"),
    [
        ("1x4 0x200", 60),  # answered for twenty seconds, between two whole minutes
        ("0x18 1x3 0x200", 120),
        ("1x58 0x200", 300),
        ("0x200", None),
    ],
)
def test_target_up_for_seconds_is_remembered(tmp_path: Path, up: str, end_s: int | None) -> None:
    labels = '{job="router", namespace="default", endpoint_name="demo"}'
    samples = [{"labels": '{job="router"}', "value": end_s}] if end_s is not None else []
    question = {
        "expr": targets.last_up(Scope("demo"), ("router",)),
        "eval_time": "16m",
        "exp_samples": samples,
    }
    case = {
        "interval": "5s",
        "input_series": [{"series": f"up{labels}", "values": up}],
        "promql_expr_test": [question],
    }
    (tmp_path / "tests.json").write_text(json.dumps({"tests": [case]}))
    command = [PROMTOOL, "test", "rules", str(tmp_path / "tests.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
