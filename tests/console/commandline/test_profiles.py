"""Console selection, and requests rejected before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from console.commandline.context import CommandError
from console.commandline.profiles import Profile, profiles_path, read, select_console, write

HTTPS = "https://console.example"


def saved(tmp_path: Path, **named: str) -> dict[str, str]:
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    write(profiles_path(env), {name: Profile(url, f"t-{name}") for name, url in named.items()})
    return env


def test_first_configured_source_wins(tmp_path: Path) -> None:
    env = saved(tmp_path, default=HTTPS, west="https://west.example")
    every = {**env, "EMBERLINE_URL": "https://env.example", "EMBERLINE_PROFILE": "west"}

    def url(options: dict[str, Any], env: dict[str, str]) -> str:
        found = select_console(options, env)
        return found.profile.url if found else ""

    assert url({"local": True}, every) == ""
    assert url({"profile": "default"}, every) == HTTPS
    assert url({}, every) == "https://env.example"
    assert url({}, {**env, "EMBERLINE_PROFILE": "west"}) == "https://west.example"
    assert url({}, env) == HTTPS
    assert url({}, {"XDG_CONFIG_HOME": str(tmp_path / "none")}) == ""


def test_token_of_the_environment_is_not_used_with_a_profile(tmp_path: Path) -> None:
    """A token for one console must not be sent to another."""
    env = {**saved(tmp_path, west=HTTPS), "EMBERLINE_TOKEN": "t-env"}
    found = select_console({"profile": "west"}, env)
    assert found is not None and found.profile.token == "t-west"


def test_token_may_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("emb_x\n")
    env = {"EMBERLINE_URL": HTTPS, "EMBERLINE_TOKEN_FILE": str(file)}
    found = select_console({}, env)
    assert found is not None and found.profile.token == "emb_x"
    with pytest.raises(CommandError, match="cannot be read"):
        select_console({}, {**env, "EMBERLINE_TOKEN_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:8000", "x.localhost"])
def test_localhost_may_be_queried_without_tls(host: str) -> None:
    assert select_console({}, {"EMBERLINE_URL": f"http://{host}", "EMBERLINE_TOKEN": "t"})


@pytest.mark.parametrize("host", ["console.example", "10.0.0.1", "localhost.example"])
def test_other_hosts_need_tls_unless_allowed(host: str) -> None:
    env = {"EMBERLINE_URL": f"http://{host}", "EMBERLINE_TOKEN": "t"}
    with pytest.raises(CommandError, match="is not encrypted"):
        select_console({}, env)
    assert select_console({}, {**env, "EMBERLINE_ALLOW_HTTP": "1"})


def test_damaged_file_is_named(tmp_path: Path) -> None:
    env = saved(tmp_path, default=HTTPS)
    for text in ("{", "[]", '{"default": {"address": "x"}}', '{"default": 1}'):
        profiles_path(env).write_text(text)
        with pytest.raises(CommandError, match="is not valid"):
            select_console({}, env)


def test_token_is_in_no_repr(tmp_path: Path) -> None:
    env = saved(tmp_path, default=HTTPS)
    assert "t-default" not in repr(read(profiles_path(env))) + repr(select_console({}, env))


def test_writing_leaves_no_other_file(tmp_path: Path) -> None:
    env = saved(tmp_path, default=HTTPS)
    assert [one.name for one in profiles_path(env).parent.iterdir()] == ["profiles.json"]
    profiles_path(env).unlink()
    profiles_path(env).mkdir()
    with pytest.raises(CommandError, match="cannot be written"):
        write(profiles_path(env), {})
    assert [one.name for one in profiles_path(env).parent.iterdir()] == ["profiles.json"]
