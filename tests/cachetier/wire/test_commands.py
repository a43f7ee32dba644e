from __future__ import annotations

from cachetier.engine.server import HANDLERS
from cachetier.engine.session import VALUE_PLACES
from cachetier.wire.commands import OPERATIONS, TABLE


def test_every_command_has_a_handler_and_every_handler_a_command() -> None:
    assert set(TABLE) == set(HANDLERS)
    assert set(VALUE_PLACES) <= set(TABLE)


def test_counted_commands_use_known_labels() -> None:
    assert {command.op for command in TABLE.values()} - {""} == set(OPERATIONS)


def test_arity_counts_the_name() -> None:
    assert TABLE["get"].accepts(2)
    assert not TABLE["get"].accepts(3)
    assert TABLE["del"].accepts(2)
    assert TABLE["del"].accepts(9)
    assert not TABLE["del"].accepts(1)
