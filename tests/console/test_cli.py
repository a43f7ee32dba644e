from __future__ import annotations

import sys

import pytest

from console import cli


@pytest.mark.django_db
def test_the_script_runs_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["emberline", "endpoint", "list"])
    cli.main()
    assert "There are no endpoints" in capsys.readouterr().out
