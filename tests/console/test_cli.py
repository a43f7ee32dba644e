from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from console import cli


@pytest.mark.django_db
def test_script_runs_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["emberline", "endpoint", "list"])
    cli.main()
    assert "No endpoints." in capsys.readouterr().out


def test_usage_names_the_script_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["emberline", "endpoint", "scale", "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().out.startswith("usage: emberline endpoint scale ")


@pytest.mark.django_db
def test_closed_output_pipe_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    """`emberline ... | head`"""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody:
        monkeypatch.setattr(sys, "argv", ["emberline", "endpoint", "list"])
        monkeypatch.setattr(sys, "stdout", nobody)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert ended.value.code == 141


@pytest.mark.django_db
def test_output_to_a_full_disk_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["emberline", "endpoint", "list"])
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert "The output cannot be written: No space left on device." in str(ended.value.code)


@pytest.mark.django_db
def test_closed_output_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`emberline ... >&-`"""
    monkeypatch.setattr(sys, "argv", ["emberline", "endpoint", "list"])
    monkeypatch.setattr(sys, "stdout", None)
    cli.main()


@pytest.mark.django_db
def test_terminal_without_utf8_shows_replacements(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "argv", ["emberline", "alert", "rules"])
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    cli.main()
    assert b"?" in written.getvalue()
