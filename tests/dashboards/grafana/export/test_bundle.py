"""`emberline dashboards`: the export as files in a folder."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from django.core.management import CommandError, call_command

from console.client import Client
from console.commandline.context import CommandContext
from console.commandline.context import CommandError as Wrong
from console.commandline.platform import dashboards
from dashboards.grafana import export
from tests.dashboards.grafana.export.checker import wrong_with


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("emberline", "dashboards", *words, stdout=out)
    return out.getvalue()


@pytest.mark.django_db
def test_a_folder_gets_every_file_and_keeps_what_is_not_ours(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "grafana"
    told = run("export", "--to", str(folder)).split()
    assert set(told) == {str(path) for path in folder.rglob("*") if path.is_file()}
    boards = sorted((folder / "dashboards").glob("*.json"))
    assert {path.stem for path in boards} == {one.uid for one in export.list_exports()}
    for path in boards:
        assert wrong_with(json.loads(path.read_text())) == []
    (folder / "mine.json").write_text("{}")
    boards[0].write_text("old")
    run("export", "--to", str(folder))
    assert (folder / "mine.json").read_text() == "{}"
    assert boards[0].read_text() != "old"


@pytest.mark.django_db
def test_they_are_listed_and_one_is_shown() -> None:
    first = export.list_exports()[0]
    assert f"{first.uid}  " in run("list")
    assert json.loads(run("get", first.uid))["uid"] == first.uid
    assert run("list", "-o", "name").split() == [one.uid for one in export.list_exports()]


@pytest.mark.django_db
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match="file"):
        run("export", "--to", str(tmp_path / "file"))


@pytest.mark.parametrize("path", ["../stolen", "/tmp/stolen", "a/../../stolen"])
def test_a_console_writes_nowhere_else(path: str, tmp_path: Path) -> None:
    files = [{"path": path, "text": "x", "media_type": "text/plain"}]
    client = SimpleNamespace(grafana=SimpleNamespace(export=lambda **_: files))
    out: Any = io.StringIO()
    asked = CommandContext(
        {"to": str(tmp_path / "in"), "recorded": False}, out, out, lambda: cast(Client, client)
    )
    with pytest.raises(Wrong, match="outside"):
        dashboards.export(asked)
    assert not list(tmp_path.rglob("stolen"))
