"""`emberline board`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dashboards.custom_boards.models import CustomBoard
from tests.console.commandline.test_parser import refused, run

pytestmark = pytest.mark.django_db

BOARD = {
    "format": "emberline/custom-board",
    "version": 1,
    "title": "Night shift",
    "panels": [
        {
            "id": "p1",
            "type": "panel",
            "title": "",
            "width": "half",
            "board": "overview",
            "panel": "ttft",
            "endpoint": "demo",
            "worker": "",
        }
    ],
}


def test_boards_are_created_exported_replaced_and_deleted(tmp_path: Path) -> None:
    file = tmp_path / "board.json"
    assert "No custom boards" in run("board", "list")
    file.write_text(json.dumps(BOARD))
    made = run("board", "create", "-f", str(file), "--shared", "yes")
    one = CustomBoard.objects.get()
    assert made == f"Board Night shift created: /dashboards/custom/{one.pk}/\n"
    assert (one.owner, one.shared) == ("console", True), "the command line of this machine"
    listed = run("board", "list")
    assert "Night shift" in listed
    assert str(one.pk) in listed
    assert json.loads(run("board", "export", "Night shift")) == BOARD
    assert "generation: 1" in run("board", "get", str(one.pk))
    file.write_text(json.dumps({**BOARD, "panels": [], "version": 2}))
    code, text = refused("board", "replace", "Night shift", "-f", str(file))
    assert code == 3
    assert "This console reads version 1." in text
    file.write_text(json.dumps({**BOARD, "title": "Day shift"}))
    run("board", "replace", "Night shift", "-f", str(file), "--shared", "no")
    assert (CustomBoard.objects.get().title, CustomBoard.objects.get().shared) == (
        "Day shift",
        False,
    )
    assert refused("board", "get", "Night shift")[0] == 4
    assert refused("board", "delete", "Day shift")[0] == 2
    assert run("board", "delete", "Day shift", "--yes") == "Board Day shift deleted.\n"
    assert not CustomBoard.objects.exists()
