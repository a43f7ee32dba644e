"""Golden files of every workload, so that a change is visible as a diff."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from console.provisioners.kubernetes.rendering.target import RenderingTarget
from tests.console.provisioners.kubernetes.rendering.matrix import BARE, SPECS, TARGET, rendered

GOLDEN = Path(__file__).parent / "golden"
CASES = [*((name, TARGET) for name in SPECS), ("worker", BARE)]


class _Plain(yaml.SafeDumper):
    """Dumper without YAML aliases."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@pytest.mark.parametrize(("name", "target"), CASES)
def test_golden(name: str, target: RenderingTarget) -> None:
    found = list(rendered(SPECS[name], target).values())
    if name not in ("worker", "router", "cache", "plain"):
        # Of other workloads, only the differences.
        base = list(rendered(SPECS[name.partition("-")[0]]).values())
        found = [data for data in found if data not in base]
    text = yaml.dump_all(found, Dumper=_Plain, sort_keys=False, width=96)
    path = GOLDEN / f"{name}{'' if target is TARGET else '-bare'}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "UPDATE_GOLDEN=1 writes it anew; then read the diff"


def test_no_golden_file_is_unused() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == {*SPECS, "worker-bare"}
