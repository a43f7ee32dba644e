"""Benchmarks are run by hand: a module that moved away must not break them unnoticed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = ("bench", "cachetier", "console", "dashboards", "endpoints", "routing", "tests")


@pytest.mark.parametrize(
    "file", sorted((ROOT / "bench").rglob("*.py")), ids=lambda file: str(file.relative_to(ROOT))
)
def test_imported_modules_exist(file: Path) -> None:
    nodes = ast.walk(ast.parse(file.read_text()))
    named = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    missing = [name for name in named if name.partition(".")[0] in PROJECT and not _exists(name)]
    assert not missing


def _exists(name: str) -> bool:
    return (ROOT / name.replace(".", "/")).is_dir() or (
        ROOT / f"{name.replace('.', '/')}.py"
    ).is_file()
