"""Arena with a /dev/shm that is too small: only shared-memory reads are lost."""

from __future__ import annotations

import json
import logging
import os
from types import SimpleNamespace

import pytest

from cachetier.engine import admin
from cachetier.engine.config import parse
from cachetier.engine.memory.arena import ArenaError
from cachetier.engine.node import Node

NAME = f"emberline-test-room-{os.getpid()}"


def node() -> Node:
    return Node(parse(["--memory", "8MiB", "--shm", NAME]))


def test_without_space_the_arena_is_private_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tight = SimpleNamespace(f_bavail=1, f_frsize=4096)
    monkeypatch.setattr("cachetier.engine.memory.arena.os.statvfs", lambda _path: tight)
    with caplog.at_level(logging.WARNING):
        made = node()
    try:
        document = json.loads(json.dumps(admin.stats_json(made)))["shm"]
        assert document["name"] == ""
        assert "4096 bytes free" in document["off"]
        assert any("use TCP instead" in record.getMessage() for record in caplog.records)
    finally:
        made.store.arena.close()


def test_with_space_the_arena_is_shared_and_a_second_node_of_the_name_is_rejected() -> None:
    made = node()
    try:
        assert admin.stats_json(made)["shm"] == {"name": NAME, "off": ""}
        with pytest.raises(ArenaError, match="belongs to a running node"):
            node()
    finally:
        made.store.arena.close()
