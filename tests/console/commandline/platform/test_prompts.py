"""`emberline prompts check`: its exit codes, without a console."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from console.commandline.context import run
from console.commandline.parser import build_parser
from console.commandline.platform.prompts import add_prompts

RULES = "".join(f"Rule {number}: answer with care and in words.\n" for number in range(30))


def check(path: Path, *more: str) -> Any:
    def connect() -> Any:
        raise AssertionError("no console is needed")

    options = vars(build_parser(add_prompts).parse_args(["prompts", "check", str(path), *more]))
    return run(options, connect, io.StringIO(), io.StringIO())


@pytest.mark.parametrize(
    ("prompts", "code", "text"),
    [
        ([RULES + "one", RULES + "two"], 0, "no early changes"),
        ([f"At 10:0{n}\n{RULES}" for n in range(3)], 1, "timestamp (changed_timestamp)"),
        ([RULES], 2, "give two or more"),
    ],
)
def test_exit_code(tmp_path: Path, prompts: list[str], code: int, text: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(map(json.dumps, prompts)))
    ended = check(file)
    assert (ended.exit_code, ended.ok) == (code, code != 2)
    assert text in ended.text
    if code == 1:
        found = json.loads(check(file, "-o", "json").text)
        assert [one["cause"] for one in found["findings"]] == ["changed_timestamp"]


def test_missing_file_is_bad_input(tmp_path: Path) -> None:
    assert check(tmp_path / "none").exit_code == 2
