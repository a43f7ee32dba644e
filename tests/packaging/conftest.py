"""The wheel of this checkout, built once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    uv = Path(sys.executable).parent / "uv"
    command = [str(uv), "build", "-q", "--wheel", "--out-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Compiling the wheel beside other tests takes longer than the limit of a test."""
    for item in items:
        if "wheel" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(1200))
