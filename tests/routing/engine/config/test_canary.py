"""Canary settings: accepted and rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from routing.engine.config import ConfigError, SessionKey, parse, show_config

BASE = {"listen": "127.0.0.1:0"}
GOOD = {"id": "c", "strategy": "kvaware", "share": 0.2}


def test_canary_is_parsed_and_shown() -> None:
    config = parse({**BASE, "canary": {**GOOD, "session_key": "header:X-Chat"}}, Path())
    assert config.canary is not None
    assert (config.canary.strategy, config.canary.share) == ("kvaware", 0.2)
    assert config.canary.session_key == SessionKey("header", "x-chat")
    shown = show_config(config)["canary"]
    assert (shown["id"], shown["session_key"]) == ("c", "header:x-chat")
    assert parse(BASE, Path()).canary is None
    assert show_config(parse(BASE, Path()))["canary"] is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"share": 0}, "canary.share"),
        ({"share": 1}, "canary.share"),
        ({"share": "half"}, "canary.share"),
        ({"id": ""}, "canary.id"),
        ({"strategy": "prefixaware"}, "canary.strategy"),
        ({"strategy": "prefixaware", "prefix_memory_blocks": 65_536}, "canary.strategy"),
        ({"strategy": "random"}, "canary.strategy"),
        ({"session_key": "x"}, "session_key"),
        ({"salt": "x"}, "canary.salt"),
    ],
)
def test_invalid_canary_is_rejected(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse({**BASE, "canary": {**GOOD, **change}}, Path())
    assert caught.value.field == field
    assert caught.value.remedy


def test_other_session_key_is_rejected_for_session() -> None:
    canary = {**GOOD, "session_key": "header:x-chat"}
    with pytest.raises(ConfigError, match="cannot differ"):
        parse({**BASE, "strategy": "session", "canary": canary}, Path())


def test_other_memory_of_the_same_strategy_is_a_candidate() -> None:
    canary = {**GOOD, "strategy": "prefixaware", "prefix_memory_blocks": 1000}
    found = parse({**BASE, "canary": canary}, Path()).canary
    assert found is not None
    assert found.prefix_memory_blocks == 1000
