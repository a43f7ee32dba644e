"""Patterns and walks: what a client may ask for costs no more than its length, and is true."""

from __future__ import annotations

import pytest
import redis

from cachetier.engine.globs import compile_glob
from tests.cachetier.engine.conftest import Start


@pytest.mark.parametrize("pattern", [b"*a" * 40 + b"b", b"*" * 4000 + b"b", b"*?" * 60 + b"b"])
def test_no_pattern_goes_back_over_what_it_has_matched(pattern: bytes) -> None:
    """With backtracking this would take longer than the universe has."""
    assert compile_glob(pattern).fullmatch(b"a" * 4000) is None


def test_a_walk_which_was_forgotten_does_not_look_finished(start: Start) -> None:
    """Or who asks would take half the keys for all of them."""
    db = redis.Redis(port=start().port)
    for number in range(50):
        db.set(f"k{number}", "")
    first, _ = db.scan(0, count=10)
    for _ in range(20):
        db.scan(0, count=10)
    for cursor in (first, 12345 << 32 | 10, 7):
        with pytest.raises(redis.ResponseError, match="begin again with cursor 0"):
            db.scan(cursor)


def test_a_walk_may_go_on_over_another_connection(start: Start) -> None:
    node = start()
    db, other = redis.Redis(port=node.port), redis.Redis(port=node.port)
    for number in range(50):
        db.set(f"k{number}", "")
    cursor, keys = db.scan(0, count=30)
    cursor, rest = other.scan(cursor, count=30)
    assert (cursor, len({*keys, *rest})) == (0, 50)


def test_keys_which_have_ended_are_not_shown(start: Start) -> None:
    db = redis.Redis(port=start().port)
    db.set("stays", "")
    db.execute_command("SET", "ended", "", "PXAT", 1)
    assert list(db.scan_iter()) == [b"stays"]
    assert db.keys() == [b"stays"]
