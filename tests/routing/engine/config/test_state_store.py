"""Configuration of the state store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from routing.engine.config import ConfigError, parse, show_config
from routing.engine.config.state_store import PASSWORD_ENV


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hash.key").write_text("h" * 32)
    (tmp_path / "password").write_text("secret word\n")
    return tmp_path


def parsed(folder: Path, **store: Any):
    data = {"listen": "127.0.0.1:0", "hash_key_file": "hash.key", "state_store": store}
    return parse(data, folder)


def test_store_is_read_and_shown_without_its_password(folder):
    config = parsed(folder, url="rediss://[::1]:7000/3", password_file="password", routers=4)
    store = config.state_store
    assert store is not None
    assert (str(store), store.password, store.routers) == (
        "rediss://[::1]:7000/3",
        "secret word",
        4,
    )
    assert folder / "password" in config.files  # watched
    assert "secret word" not in f"{config}{show_config(config)}"


def test_password_of_the_environment(folder, monkeypatch):
    monkeypatch.setenv(PASSWORD_ENV, "from a pod")
    store = parsed(folder, url="redis://a").state_store
    assert store is not None
    assert (store.password, store.port) == ("from a pod", 6379)


@pytest.mark.parametrize(
    ("store", "field"),
    [
        ({"url": "http://a:1"}, "state_store.url"),
        ({"url": "redis://a:0"}, "state_store.url"),
        ({"url": "redis://a/x"}, "state_store.url"),
        ({"url": "redis://u:secret@a"}, "state_store.url"),
        ({"url": "redis://a", "password_file": "absent"}, "state_store.password_file"),
        ({"url": "redis://a", "ca": "password"}, "state_store.ca"),
        ({"url": "redis://a", "routers": 0}, "state_store.routers"),
    ],
)
def test_nonsense_is_rejected_by_name(folder, store, field):
    with pytest.raises(ConfigError) as found:
        parsed(folder, **store)
    assert found.value.field == field
    assert "secret" not in str(found.value)


def test_store_needs_the_key_that_makes_hashes_agree(folder):
    with pytest.raises(ConfigError, match="hash_key_file"):
        parse({"listen": "127.0.0.1:0", "state_store": {"url": "redis://a"}}, folder)
