"""Settings of the routers' state store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.core import environment
from console.core.environment import SettingError

PREFIX = "EMBERLINE_STATE_STORE_"


def load(tmp_path: Path, **env: str) -> environment.Emberline:
    return environment.load({"EMBERLINE_VAR": str(tmp_path / "var"), **env}, tmp_path)


def test_store_with_its_password_and_ca(tmp_path: Path):
    (tmp_path / "password").write_text("secret word")
    (tmp_path / "ca.pem").write_text("-----CA")
    found = load(
        tmp_path,
        EMBERLINE_STATE_STORE_URL="rediss://valkey:6379/1",
        EMBERLINE_STATE_STORE_USER="router",
        EMBERLINE_STATE_STORE_PASSWORD_FILE=str(tmp_path / "password"),
        EMBERLINE_STATE_STORE_CA_FILE=str(tmp_path / "ca.pem"),
    ).state_store
    assert found is not None
    assert (found.url, found.username, found.ca) == ("rediss://valkey:6379/1", "router", "-----CA")
    assert "secret word" not in repr(found)  # read when a router is started
    assert load(tmp_path).state_store is None


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"URL": "http://valkey"}, "URL"),
        ({"URL": "redis://"}, "URL"),
        ({"URL": "redis://valkey:0"}, "URL"),
        ({"URL": "redis://valkey:x"}, "URL"),
        ({"URL": "redis://valkey/first"}, "URL"),
        ({"URL": "redis://:secret@valkey"}, "URL"),
        ({"URL": "redis://valkey", "PASSWORD_FILE": "/absent/secret"}, "PASSWORD_FILE"),
        ({"URL": "rediss://valkey", "CA_FILE": "/absent/ca"}, "CA_FILE"),
        ({"URL": "redis://valkey", "CA_FILE": "/absent/ca"}, "CA_FILE"),
    ],
)
def test_nonsense_is_rejected_by_name(tmp_path: Path, settings: dict[str, Any], name: str):
    with pytest.raises(SettingError, match=PREFIX + name) as found:
        load(tmp_path, **{PREFIX + key: value for key, value in settings.items()})
    assert ":secret@" not in str(found.value)
