"""Evaluate alert rules with promtool: series in, alerts out."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from dashboards.alerts.rules.rule_file import render
from tests.support.prometheus import PROMTOOL

Series = dict[str, str]
"""A series with its labels, and its values in promtool's own notation, one a minute."""


@dataclass(frozen=True)
class Case:
    """`fires`: labels of exactly the alerts that must fire at `at`; `notes`: their annotations."""

    name: str
    series: Series
    fires: Sequence[dict[str, str]]
    at: str = "40m"
    notes: dict[str, str] = field(default_factory=dict)

    def as_test(self, number: int) -> dict[str, Any]:
        alert = {
            "eval_time": self.at,
            "alertname": self.name,
            "exp_alerts": [
                {"exp_labels": labels, "exp_annotations": self.notes} for labels in self.fires
            ],
        }
        return {
            "name": f"{number} {self.name}",
            "interval": "1m",
            "input_series": [{"series": s, "values": v} for s, v in self.series.items()],
            "alert_rule_test": [alert],
        }


def judged(
    folder: Path, rules: str, cases: Sequence[Case], every: str = "1m"
) -> subprocess.CompletedProcess[str]:
    """Run each case with the rules of its name only: all rules would take forty times as long.

    `every`: evaluation interval; a day in minutes takes half a minute.
    """
    groups = yaml.load(rules, Loader=yaml.CSafeLoader)["groups"]
    files = []
    for name in dict.fromkeys(case.name for case in cases):
        mine = [rule for group in groups for rule in group["rules"] if rule["alert"] == name]
        found = {"groups": [{"name": "g", "rules": mine}] if mine else []}
        (folder / f"{name}.rules.json").write_text(json.dumps(found))
        tests = [case.as_test(n) for n, case in enumerate(cases) if case.name == name]
        data = {"rule_files": [f"{name}.rules.json"], "evaluation_interval": every, "tests": tests}
        file = folder / f"{name}.tests.json"
        file.write_text(json.dumps(data))
        files.append(file)
    return subprocess.run([PROMTOOL, "test", "rules", *files], capture_output=True, text=True)


def bare(rules: str = "") -> str:
    """Return the rules without annotations, which promtool would compare literally."""
    data = yaml.load(rules or render(), Loader=yaml.CSafeLoader)
    for group in data["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]
    return yaml.safe_dump(data)
