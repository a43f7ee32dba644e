from __future__ import annotations

from pathlib import Path

from cachetier.engine.net.session import VALUE_ARGUMENTS
from cachetier.engine.server import HANDLERS
from cachetier.wire.commands import OPERATIONS, TABLE
from cachetier.wire.handbook import render_table, renew_page


def test_every_command_has_a_handler_and_every_handler_a_command() -> None:
    assert set(TABLE) == set(HANDLERS)
    assert set(VALUE_ARGUMENTS) <= set(TABLE)


def test_counted_commands_use_known_labels() -> None:
    assert {command.op for command in TABLE.values()} - {""} == set(OPERATIONS)


def test_arity_includes_the_name() -> None:
    assert TABLE["get"].accepts(2)
    assert not TABLE["get"].accepts(3)
    assert TABLE["del"].accepts(2)
    assert TABLE["del"].accepts(9)
    assert not TABLE["del"].accepts(1)


PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "cache-commands.md"


def test_page_has_the_current_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert renew_page(page) == page, f"python -m cachetier.wire.handbook docs/reference/{PAGE.name}"


def test_page_names_every_command() -> None:
    page = render_table()
    for command in TABLE.values():
        assert f"`{command.name.upper()}" in page
        for one in command.subcommands:
            assert one.name == "help" or f"`{command.name.upper()} {one.name.upper()}" in page
