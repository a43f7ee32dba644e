"""What this installation offers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from endpoints.placement import installation


def test_known_models(settings: Any) -> None:
    root = settings.EMBERLINE.var / "models"
    assert installation.models()[installation.DEMO_MODEL] == ""
    folder = root / "mine"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    try:
        assert installation.models()["mine"] == str(folder)
        assert installation.model_location("mine") == str(folder)
        assert installation.model_location("org/name") == "org/name"
    finally:
        (folder / "config.json").unlink()
        folder.rmdir()


@pytest.mark.parametrize(("text", "least"), [("1048576\n", 1048576), ("max\n", None)])
def test_a_container_limit_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, least: int | None
) -> None:
    monkeypatch.undo()  # the room's fixture pretends a machine
    limit = tmp_path / "memory.max"
    limit.write_text(text)
    monkeypatch.setattr(installation, "LIMIT_FILES", (str(tmp_path / "none"), str(limit)))
    assert installation.memory_bytes() == (least or psutil.virtual_memory().total)
