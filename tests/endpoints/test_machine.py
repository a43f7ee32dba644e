"""What this installation offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from endpoints import machine


def test_the_consoles_own_secrets_are_no_password_files(settings: Any, tmp_path: Path) -> None:
    """Else an operator could send them to an address of their choice."""
    good = tmp_path / "password"
    good.write_text("x")
    assert machine.may_read(str(good))
    own = settings.EMBERLINE.secrets / "install_id"
    assert own.is_file()
    link = tmp_path / "link"
    link.symlink_to(own)
    for bad in (own, link, tmp_path, tmp_path / "none", settings.EMBERLINE.secrets / ".." / own):
        assert not machine.may_read(str(bad)), bad


def test_known_models(settings: Any) -> None:
    root = settings.EMBERLINE.var / "models"
    assert machine.models()[machine.DEMO_MODEL] == ""
    folder = root / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    try:
        assert machine.models()["mine"] == str(folder)
        assert machine.model_location("mine") == str(folder)
        assert machine.model_location("org/name") == "org/name"
    finally:
        (folder / "config.json").unlink()
        folder.rmdir()


def test_what_cannot_be_a_password_file(tmp_path: Path) -> None:
    long = tmp_path / "long"
    long.write_bytes(b"x" * (machine.LONGEST_PASSWORD_FILE + 1))
    assert not machine.may_read(str(long))
    assert not machine.may_read("/" + "x" * 5000)


@pytest.mark.parametrize(("text", "least"), [("1048576\n", 1048576), ("max\n", None)])
def test_a_container_limit_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, least: int | None
) -> None:
    monkeypatch.undo()  # the room's fixture pretends a machine
    limit = tmp_path / "memory.max"
    limit.write_text(text)
    monkeypatch.setattr(machine, "LIMIT_FILES", (str(tmp_path / "none"), str(limit)))
    assert machine.memory_bytes() == (least or psutil.virtual_memory().total)
