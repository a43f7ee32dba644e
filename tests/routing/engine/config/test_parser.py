"""Router configuration: accepted and rejected input, and the watched file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from routing.engine.config import Address, Config, ConfigError, parse, parse_address
from routing.engine.config.source import ConfigSource, load_config

FULL: dict[str, Any] = {
    "endpoint": "demo",
    "namespace": "default",
    "listen": "127.0.0.1:9000",
    "admin": "[::1]:9090",
    "strategy": "session",
    "session_key": "header:X-Session-ID",
    "model": "smollm2-135m-instruct",
    "prefix_block_bytes": 128,
    "api_keys_file": "keys.json",
    "workers": [
        {"id": "demo-worker-0", "url": "http://127.0.0.1:20001", "draining": True},
        {"url": "http://[::1]:20002/"},
    ],
    "health": {"path": "/health", "interval_s": 1.0, "timeout_s": 2.0},
    "decisions": {"keep": 10},
    "retry": {"attempts": 3},
}
DIGEST = hashlib.sha256(b"secret").hexdigest()


def keys_file(folder: Path, content: str | None = None) -> Path:
    path = folder / "keys.json"
    default = {"keys": [{"id": "console", "sha256": DIGEST.upper(), "pin": True}]}
    path.write_text(json.dumps(default) if content is None else content)
    return path


def refused(data: Any, folder: Path = Path()) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(data, folder)
    error = caught.value
    assert error.message
    assert error.remedy.endswith(".")
    return error


def test_complete_configuration_is_parsed(tmp_path: Path) -> None:
    path = keys_file(tmp_path)
    config = parse(FULL, tmp_path)
    assert (config.endpoint, config.strategy, config.decisions_keep) == ("demo", "session", 10)
    assert config.admin == Address("::1", 9090)
    assert str(config.admin) == "[::1]:9090"
    assert (config.session_key.source, config.session_key.name) == ("header", "x-session-id")
    assert [worker.id for worker in config.workers] == ["demo-worker-0", "[::1]:20002"]
    assert config.workers[0].draining
    assert config.workers[1].address == Address("::1", 20002)
    assert config.keys is not None
    assert (config.keys[0].id, config.keys[0].sha256, config.keys[0].pin) == (
        "console", DIGEST, True,
    )  # fmt: skip
    assert config.files == (path,)
    assert config.retry.attempts == 3


def test_minimal_configuration_is_parsed() -> None:
    config = parse({"listen": "localhost:0"}, Path())
    assert config == Config(listen=Address("localhost", 0))
    assert config.keys is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"listen": ""}, "listen"),
        ({"listen": "9000"}, "listen"),
        ({"listen": "h:70000"}, "listen"),
        ({"listen": 9000}, "listen"),
        ({"listen": ["h:1", 5]}, "listen[1]"),
        ({"listen": ["h:1", "h:1"]}, "listen[1]"),
        ({"listen": []}, "listen"),
        ({"limits": {"shutdown_delay_s": -1}}, "limits.shutdown_delay_s"),
        ({"admin": "nowhere"}, "admin"),
        ({"strategy": "fastest"}, "strategy"),
        ({"kv": {"tokenizer": "absent"}}, "kv.tokenizer"),
        ({"kv": {"wait_s": -1}}, "kv.wait_s"),
        ({"kv": {"speed": 1}}, "kv.speed"),
        ({"workers": [{"url": "http://h:1", "kv_events": "tcp://*:5"}]}, "workers[0].kv_events"),
        ({"workers": [{"url": "http://h:1", "kv_replay": "5557"}]}, "workers[0].kv_replay"),
        ({"strategy": "magic"}, "strategy"),
        ({"session_key": "header:"}, "session_key"),
        ({"session_key": "query:x"}, "session_key"),
        ({"prefix_block_bytes": 0}, "prefix_block_bytes"),
        ({"prefix_block_bytes": True}, "prefix_block_bytes"),
        ({"prefix_block_bytes": 1.5}, "prefix_block_bytes"),
        ({"workers": {}}, "workers"),
        ({"workers": ["http://h:1"]}, "workers[0]"),
        ({"workers": [{"url": "h:1"}]}, "workers[0].url"),
        ({"workers": [{"url": "http://h:99999"}]}, "workers[0].url"),
        ({"workers": [{"url": "ftp://h:1"}]}, "workers[0].url"),
        ({"workers": [{"url": "http://h:1/v1"}]}, "workers[0].url"),
        ({"workers": [{"url": "http://h:1", "id": "a\r\nb"}]}, "workers[0].id"),
        ({"workers": [{"url": "http://h:1", "weight": 3}]}, "workers[0].weight"),
        ({"workers": [{"url": "http://h:1"}, {"url": "http://h:1"}]}, "workers[1].id"),
        ({"health": {"interval_s": 0}}, "health.interval_s"),
        ({"health": {"path": "health"}}, "health.path"),
        ({"health": {"every": 1}}, "health.every"),
        ({"decisions": {"keep": -1}}, "decisions.keep"),
        ({"decisions": 5}, "decisions"),
        ({"retry": {"attempts": 0}}, "retry.attempts"),
        ({"limits": {"body_bytes": "1M"}}, "limits.body_bytes"),
        ({"limits": {"speed": 1}}, "limits.speed"),
        ({"endpoint": "a b"}, "endpoint"),
        ({"api_keys_file": "absent.json"}, "api_keys_file"),
        ({"hash_key_file": "absent"}, "hash_key_file"),
        ({"Listen": "h:1"}, "Listen"),
        ({"": 1}, "(empty)"),
        ({5: 1}, "5"),
        ({"health": {None: 1}}, "health.None"),
        ({"workers": [{}]}, "workers[0].url"),
        ({"kv": {"tokenizer": None}}, "kv.tokenizer"),
    ],
)
def test_errors_name_the_field(change: dict[str, Any], field: str) -> None:
    assert refused({"listen": "127.0.0.1:1", **change}).field == field


def test_unknown_strategy_is_rejected_with_value_and_remedy() -> None:
    error = refused({"listen": "127.0.0.1:1", "strategy": "fastest"})
    assert error.value == "fastest"
    assert "kvaware" in error.remedy


def test_errors_contain_no_secret(tmp_path: Path) -> None:
    for url in ("http://user:hunter2@h:1", "https://user:hunter2@h:1", "user:hunter2@h"):
        error = refused({"listen": "h:1", "workers": [{"url": url}]})
        assert "hunter2" not in str(error)
    keys_file(tmp_path, '{"keys": [{"id": "a", "sha256": "hunter2"}]}')
    assert "hunter2" not in str(refused({"listen": "h:1", "api_keys_file": "keys.json"}, tmp_path))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"keys": {}}',
        '{"keys": [{"sha256": "' + DIGEST + '"}]}',
        '{"keys": [{"id": "a"}]}',
        '{"keys": [{"id": "a", "sha256": "' + DIGEST + '", "root": true}]}',
        '{"keys": [{"id": "a", "sha256": "' + DIGEST + '", "models": "m"}]}',
        '{"keys": [{"id": "a", "sha256": "' + DIGEST + '", "expires": -1}]}',
        '{"keys": [{"\\ud800": 1}]}',
        '{"keys": [{"id": "a", "sha256": "' + DIGEST + '", "limits": {"weight": 0}}]}',
        json.dumps({"keys": [{"id": "a", "sha256": DIGEST}, {"id": "b", "sha256": DIGEST}]}),
    ],
)
def test_broken_key_file_is_rejected(tmp_path: Path, content: str) -> None:
    keys_file(tmp_path, content)
    refused({"listen": "h:1", "api_keys_file": "keys.json"}, tmp_path)


def test_short_hash_key_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(b"short\n")
    assert refused({"listen": "h:1", "hash_key_file": "k"}, tmp_path).field == "hash_key_file"
    (tmp_path / "k").write_bytes(b"x" * 32 + b"\n")
    assert parse({"listen": "h:1", "hash_key_file": "k"}, tmp_path).hash_key == b"x" * 32


def test_addresses() -> None:
    assert parse_address("a", "[fe80::1%eth0]:1") == Address("fe80::1%eth0", 1)
    for bad in ("::1:80", "h", ":80", "h:", "h:x", "h:1 ", "h h:1"):
        with pytest.raises(ConfigError):
            parse_address("a", bad)


# -- the file


def test_yaml_and_json_are_equivalent(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("listen: 127.0.0.1:1\nworkers:\n  - url: http://h:1\n")
    (tmp_path / "c.json").write_text(
        '{"listen": "127.0.0.1:1", "workers": [{"url": "http://h:1"}]}'
    )
    assert load_config(tmp_path / "c.yaml") == load_config(tmp_path / "c.json")


@pytest.mark.parametrize("content", ["{", "[]", "", '{"listen": 5}', '{"nothing": 1}'])
def test_broken_file_is_rejected(tmp_path: Path, content: str) -> None:
    for name in ("c.json", "c.yaml"):
        (tmp_path / name).write_text(content)
        with pytest.raises(ConfigError):
            load_config(tmp_path / name)


def replace(path: Path, content: str) -> None:
    """As the console writes: a new file moved over the old one."""
    new = path.with_suffix(".new")
    new.write_text(content)
    new.replace(path)


def test_changes_are_noticed_once_and_invalid_files_keep_the_last_valid_one(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"listen": "h:1", "model": "a"}')
    source = ConfigSource(path)
    assert source.poll() is None
    replace(path, '{"listen": "h:1", "model": "b"}')
    found = source.poll()
    assert isinstance(found, Config)
    assert found.model == "b"
    assert source.poll() is None
    replace(path, '{"listen": "h:1", "model": ')
    assert isinstance(source.poll(), ConfigError)
    assert source.poll() is None, "one complaint for one bad file"
    assert source.config.model == "b"
    path.unlink()
    assert isinstance(source.poll(), ConfigError)
    replace(path, '{"listen": "h:1", "model": "c"}')
    assert isinstance(source.poll(), Config)
    assert isinstance(source.poll(force=True), Config), "SIGHUP reads unchanged files too"


def test_referenced_files_are_watched(tmp_path: Path) -> None:
    keys_file(tmp_path)
    path = tmp_path / "c.json"
    path.write_text('{"listen": "h:1", "api_keys_file": "keys.json"}')
    source = ConfigSource(path)
    replace(tmp_path / "keys.json", '{"keys": []}')
    found = source.poll()
    assert isinstance(found, Config)
    assert found.keys == ()
    replace(tmp_path / "keys.json", "{")
    assert isinstance(source.poll(), ConfigError)


def test_missing_referenced_file_is_awaited(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"listen": "h:1"}')
    source = ConfigSource(path)
    replace(path, '{"listen": "h:1", "api_keys_file": "keys.json"}')
    assert isinstance(source.poll(), ConfigError)
    assert source.poll() is None
    keys_file(tmp_path)
    found = source.poll()
    assert isinstance(found, Config)
    assert found.keys


def test_settings_that_need_a_restart_keep_their_value() -> None:
    from routing.engine.observe.logs import Log
    from routing.engine.router import NEED_RESTART, Router

    before = parse({"listen": "127.0.0.1:1"}, Path())
    router = Router(before, Log("error"))
    changed = parse({"listen": ["127.0.0.1:2", "127.0.0.1:3"], "model": "b"}, Path())
    router.reconfigure(changed)
    assert router.config_ignored == ["listen", "listen_more"]
    assert set(router.config_ignored) <= set(NEED_RESTART)
    assert (router.config.listen, router.config.model) == (before.listen, "b")
    router.reconfigure(before)
    assert router.config_ignored == []
