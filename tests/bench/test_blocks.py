"""Copied blocks equal those that Prometheus would have written."""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench import blocks, month
from tests.support.prometheus import PROMTOOL

START = 1_790_000_000
PAGE = """\
# TYPE asked_total counter
asked_total{endpoint_name="llm-0",pod="llm-0-worker-1"} 1 1790000000
asked_total{endpoint_name="llm-0",pod="llm-0-worker-1"} 5 1790000060
asked_total{pool="default"} 2 1790000000
# EOF
"""


def test_each_endpoint_and_each_day_has_its_samples(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (tmp_path / "page.om").write_text(PAGE)
    argv = [PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", "-q"]
    subprocess.run([*argv, str(tmp_path / "page.om"), str(data)], check=True)
    series, _ = blocks.copy(data, endpoints=3, days=2)
    assert series == 4
    (data / "wal").mkdir()  # required by promtool
    found = subprocess.run([PROMTOOL, "tsdb", "dump", str(data)], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    expected = {
        (labels, value, 1000 * (START + after - day * month.DAY_S))
        for day in range(2)
        for labels, samples in _expected().items()
        for value, after in samples
    }
    assert set(map(_sample, found.stdout.splitlines())) == expected


def _expected() -> dict[str, list[tuple[float, int]]]:
    each = {
        f'endpoint_name="llm-{n}", pod="llm-{n}-worker-1"': [(1.0, 0), (5.0, 60)] for n in range(3)
    }
    return each | {'pool="default"': [(2.0, 0)]}


def _sample(line: str) -> tuple[str, float, int]:
    """`{__name__="...", ...} VALUE MILLISECONDS`"""
    labels, value, moment = line.rsplit(" ", 2)
    return labels.removeprefix('{__name__="asked_total", ').rstrip("}"), float(value), int(moment)
