"""What each workload becomes, whole, in files that people read: a change shows as a diff there."""

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
    """Says a thing twice rather than by reference."""

    def ignore_aliases(self, data: object) -> bool:
        return True


@pytest.mark.parametrize(("name", "target"), CASES)
def test_golden(name: str, target: RenderingTarget) -> None:
    found = list(rendered(SPECS[name], target).values())
    if name not in ("worker", "router", "cache", "plain"):
        # Of the others only what sets them apart.
        base = list(rendered(SPECS[name.partition("-")[0]]).values())
        found = [data for data in found if data not in base]
    text = yaml.dump_all(found, Dumper=_Plain, sort_keys=False, width=96)
    path = GOLDEN / f"{name}{'' if target is TARGET else '-bare'}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), "UPDATE_GOLDEN=1 writes it anew; then read the diff"


def test_no_golden_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == {*SPECS, "worker-bare"}
