"""The headless shell for the browser tests: unpacked whole or not used at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.launcher import tools
from console.launcher.layout import Layout
from console.launcher.progress import StepFailed

RUNS, FAILS = "#!/bin/sh\n", "#!/bin/sh\nexit 127\n"


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """Without a shell in PATH; apt-get and dpkg are there."""
    there = {"apt-get": "/bin/true", "dpkg": "/bin/true"}
    monkeypatch.setattr(tools.shutil, "which", there.get)
    return Layout(tmp_path)


def unpacks(monkeypatch: pytest.MonkeyPatch, program: str, without: str = "") -> list[str]:
    names: list[str] = []

    def unpack(layout: Layout, name: str) -> None:
        names.append(name)
        if name == without:
            raise StepFailed(f"apt-get download {name} failed")
        folder = layout.tools / "usr" / "lib" / "chromium"
        folder.mkdir(parents=True, exist_ok=True)
        common = name == "chromium-common"
        for file in ("icudtl.dat",) if common else ("headless_lib_data.pak", SHELL):
            (folder / file).write_text(program)
            (folder / file).chmod(0o755)

    monkeypatch.setattr(tools, "unpack_debian_package", unpack)
    return names


SHELL = "chromium-headless-shell"


def test_the_headless_shell_is_unpacked_once(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = unpacks(monkeypatch, RUNS)
    assert tools.headless_shell(layout) is None
    found = tools.ensure_headless_shell(layout)
    assert found == layout.tools / "usr" / "lib" / "chromium" / SHELL
    assert tools.ensure_headless_shell(layout) == found
    assert names == ["chromium-common", SHELL]


@pytest.mark.parametrize(
    ("program", "without"), [(FAILS, ""), (RUNS, "chromium-common"), (RUNS, SHELL)]
)
def test_a_headless_shell_that_does_not_run_is_not_used(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, program: str, without: str
) -> None:
    unpacks(monkeypatch, program, without)
    assert tools.ensure_headless_shell(layout) is None
    assert tools.headless_shell(layout) is None
