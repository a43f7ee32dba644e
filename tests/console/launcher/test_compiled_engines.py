"""When engines run interpreted, and what `make up` prints then."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from console.launcher import compiled_engines, tools
from console.launcher.layout import Layout


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.delenv("EMBERLINE_COMPILED", raising=False)
    layout = Layout(tmp_path / "var")
    layout.prepare()
    return layout


@pytest.mark.parametrize(
    ("missing", "remedy"),
    [("compiler", "apt-get install gcc"), ("headers", "apt-get install python3-dev")],
)
def test_missing_compiler_is_reported_with_the_remedy(
    missing: str,
    remedy: str,
    layout: Layout,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if missing == "compiler":
        monkeypatch.setattr(tools.shutil, "which", lambda _name: None)
    else:
        monkeypatch.setattr(tools.sysconfig, "get_path", lambda _name: str(layout.var))
    assert compiled_engines.wait(layout, compiled_engines.start(layout)) is None
    output = capsys.readouterr().out
    assert "run interpreted" in output
    assert remedy in output


def test_compilation_can_be_turned_off(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EMBERLINE_COMPILED", "0")
    assert compiled_engines.start(layout) is None
    assert "EMBERLINE_COMPILED=0" in capsys.readouterr().out


def test_failed_compilation_names_its_log(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(["false"]) as compilation:
        assert compiled_engines.wait(layout, compilation) is None
    assert str(layout.logs / "compile_engines.log") in capsys.readouterr().out
