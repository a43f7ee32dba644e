from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as live_settings

from console.core import environment
from console.core.environment import SettingError
from console.web import checks
from console.web import checks as signon_checks


def load(tmp_path: Path, **env: str) -> environment.Emberline:
    return environment.load({"EMBERLINE_VAR": str(tmp_path / "var"), **env}, tmp_path)


def test_defaults(tmp_path: Path) -> None:
    facts = load(tmp_path)
    assert (facts.workers, facts.provisioner, facts.host, facts.port) == (
        "vllm",
        "local",
        "127.0.0.1",
        8000,
    )
    assert facts.targets_token_file == tmp_path / "var" / "secrets" / "targets_token"
    assert facts.vllm_python == tmp_path / ".venv-vllm" / "bin" / "python"
    assert load(tmp_path).install_id == facts.install_id
    assert len(facts.install_id) >= 12


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("WORKERS", "gpu", "write one of: vllm, simulated"),
        ("EMBERLINE_PROVISIONER", "docker", "write one of: local, fake, kubernetes"),
        ("EMBERLINE_PORT", "eighty", "write a port number from 1 to 65535"),
        ("EMBERLINE_PORT", "70000", "write a port number from 1 to 65535"),
        ("REDIS_URL", "amqp://u:secret@h", "write redis://HOST:PORT/DB"),
        ("PROMETHEUS_URL", "localhost:9090", "write https://HOST[:PORT]"),
        ("PROMETHEUS_URL", "https://u:secret@h", "it contains credentials"),
        ("ALERTMANAGER_URL", "http://", "it has no host"),
        ("EMBERLINE_PUBLIC_URL", "https://u:secret@h", "it contains credentials"),
        ("EMBERLINE_VAR", "/dev/null/var", "write a folder that can be created"),
    ],
)
def test_invalid_value_is_named_with_its_remedy(
    tmp_path: Path, name: str, value: str, remedy: str
) -> None:
    with pytest.raises(SettingError) as refused:
        load(tmp_path, **{name: value})
    assert name in str(refused.value)
    assert remedy in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("read", "value", "parsed"),
    [
        (environment.host_names, "a.example, .b.example,*,[::1]", 4),
        (environment.host_names, "https://a.example", None),
        (environment.host_names, "a.example:8443", None),
        (environment.host_names, "a.example b.example", None),
        (environment.origins, "https://a.example/,https://*.b.example:8443", 2),
        (environment.origins, "a.example", None),
        (environment.origins, "https://a.example/console", None),
    ],
)
def test_hosts_and_origins(read: Any, value: str, parsed: int | None) -> None:
    if parsed is None:
        with pytest.raises(SettingError, match="such as"):
            read({"X": value}, "X")
    else:
        names = read({"X": value}, "X")
        assert len(names) == parsed
        assert not any(name.endswith("/") for name in names)


@pytest.mark.parametrize("url", ["mysql://x/y", "garbage", "postgres://u:secret@h:99999/db"])
def test_invalid_database_url_is_not_shown(url: str) -> None:
    with pytest.raises(SettingError, match="write postgres://") as refused:
        environment.database_url({"DATABASE_URL": url}, "")
    assert "secret" not in str(refused.value)
    assert environment.database_url({}, "sqlite:///x") == "sqlite:///x"


def test_flags(tmp_path: Path) -> None:
    assert environment.flag({"X": "Yes"}, "X")
    assert not environment.flag({}, "X")
    with pytest.raises(SettingError, match="write 1 or 0"):
        environment.flag({"X": "perhaps"}, "X")


def test_automatic_calibration_is_on_unless_turned_off(tmp_path: Path) -> None:
    for value, on in (("", True), ("1", True), ("0", False), ("off", False)):
        env = {"EMBERLINE_AUTO_CALIBRATION": value}
        assert environment.load(env, tmp_path).auto_calibration is on
    assert environment.load({}, tmp_path).auto_calibration


def test_secret_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "redis"
    file.write_text("redis://:pw@127.0.0.1:1/0\n")
    facts = load(tmp_path, REDIS_URL_FILE=str(file))
    assert facts.redis_url == "redis://:pw@127.0.0.1:1/0"
    assert "pw" not in repr(facts)


def test_secret_and_its_file_together_are_a_contradiction(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="keep only one"):
        load(tmp_path, REDIS_URL="redis://a", REDIS_URL_FILE="/nowhere")


def test_missing_secret_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"REDIS_URL_FILE.*cannot be read"):
        load(tmp_path, REDIS_URL_FILE=str(tmp_path / "none"))


def test_own_secrets_are_private_random_and_created_once(tmp_path: Path) -> None:
    path = tmp_path / "secrets" / "key"
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(lambda _: environment.generated_secret(path), range(8)))
    assert len(made) == 1
    assert len(made.pop()) > 40
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["key"]
    assert environment.generated_secret(tmp_path / "other") != environment.generated_secret(path)


def found(check: Any) -> dict[str, str]:
    return {message.id: message.hint for message in check(app_configs=None, databases=None)}


def emberline(settings: Any, **changes: Any) -> None:
    settings.EMBERLINE = replace(live_settings.EMBERLINE, **changes)


def test_valid_settings_give_no_warning() -> None:
    for check in (
        checks.check_reach,
        checks.misspelt_variables,
        checks.workers,
        checks.private_files,
        signon_checks.login_limits,
    ):
        assert found(check) == {}


def test_reachable_console_needs_names_and_tls(settings: Any) -> None:
    emberline(settings, host="0.0.0.0")
    settings.ALLOWED_HOSTS = ["localhost", "127.0.0.1", "[::1]"]
    settings.DEBUG = True
    hints = found(checks.check_reach)
    assert set(hints) == {"emberline.E001", "emberline.E002", "emberline.W003"}
    assert "EMBERLINE_ALLOWED_HOSTS" in hints["emberline.E002"]
    settings.ALLOWED_HOSTS = ["console.example"]
    settings.DEBUG = False
    settings.SESSION_COOKIE_SECURE = True
    assert found(checks.check_reach) == {}


def test_misspelt_variable_is_reported(settings: Any) -> None:
    given = {"EMBERLINE_ALOWED_HOSTS": "a", "EMBERLINE_URL": "u", "EMBERLINE_HTTPS": "1"}
    settings.VARIABLES = environment.ReadVariables(given)
    environment.host_names(settings.VARIABLES, "EMBERLINE_ALLOWED_HOSTS")
    environment.flag(settings.VARIABLES, "EMBERLINE_HTTPS")
    message, *others = checks.misspelt_variables()
    assert others == []
    assert "EMBERLINE_ALOWED_HOSTS has no effect" in message.msg
    assert "Similar: EMBERLINE_ALLOWED_HOSTS." in message.hint


def test_workers_that_cannot_start_are_reported(settings: Any, tmp_path: Path) -> None:
    emberline(settings, workers="vllm", provisioner="local", vllm_python=tmp_path / "none")
    assert "make up" in found(checks.workers)["emberline.W004"]
    emberline(settings, workers="vllm", provisioner="fake")
    assert "WORKERS=simulated" in found(checks.workers)["emberline.W005"]


def test_secrets_readable_by_others_are_reported(settings: Any, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir(mode=0o700)
    (tmp_path / "secrets" / "key").touch(mode=0o644)
    emberline(settings, var=tmp_path)
    assert "chmod" in found(checks.private_files)["emberline.E006"]
    (tmp_path / "secrets" / "key").chmod(0o600)
    assert found(checks.private_files) == {}


def test_login_limits_in_the_wrong_order_are_reported(settings: Any) -> None:
    settings.LOGIN_FAILURES_PER_ADDRESS = 1
    assert "emberline.E007" in found(signon_checks.login_limits)


@pytest.mark.parametrize(("query", "seconds"), [("", 5), ("?connect_timeout=2", 2)])
def test_unreachable_database_server_times_out(tmp_path: Path, query: str, seconds: int) -> None:
    env = {
        **os.environ,
        "EMBERLINE_VAR": str(tmp_path),
        "DATABASE_URL": f"postgres://u:p@127.0.0.1:1/e{query}",
    }
    code = "from console.settings import DATABASES as d; print(d['default']['OPTIONS'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str({"connect_timeout": seconds})


def test_encryption_keys(tmp_path: Path) -> None:
    own = load(tmp_path).encryption_keys
    assert load(tmp_path).encryption_keys == own, "made once"
    assert stat.S_IMODE((tmp_path / "var/secrets/encryption_key").stat().st_mode) == 0o600
    given = load(tmp_path, EMBERLINE_ENCRYPTION_KEY=f"{'n' * 32} {'o' * 32}")
    assert given.encryption_keys == ("n" * 32, "o" * 32)
    assert "nnnn" not in repr(given)
    with pytest.raises(SettingError, match="at least 32 random") as refused:
        load(tmp_path, EMBERLINE_ENCRYPTION_KEY="hunter2")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "password", "whole"),
    [
        ("redis://broker:6379/0", "p/w@1", "redis://:p%2Fw%401@broker:6379/0"),
        ("rediss://emb@broker/2", "s", "rediss://emb:s@broker/2?ssl_cert_reqs=required"),
        ("rediss://h/2?x=1", "", "rediss://h/2?x=1&ssl_cert_reqs=required"),
        ("rediss://h/2?ssl_cert_reqs=none", "", "rediss://h/2?ssl_cert_reqs=none"),
        ("redis://broker/0", "", "redis://broker/0"),
    ],
)
def test_separate_password_is_inserted_into_the_url(
    tmp_path: Path, url: str, password: str, whole: str
) -> None:
    file = tmp_path / "password"
    file.write_text(password + "\n")
    facts = load(tmp_path, REDIS_URL=url, EMBERLINE_REDIS_PASSWORD_FILE=str(file))
    assert facts.redis_url == whole
    assert whole not in repr(facts)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"REDIS_URL": "redis://:a@h/0"}, "REDIS_URL also contains a password"),
        ({}, "REDIS_URL has no host"),
    ],
)
def test_password_without_a_url_is_rejected(
    tmp_path: Path, env: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingError, match=message) as refused:
        load(tmp_path, EMBERLINE_REDIS_PASSWORD="hidden", **env)
    assert "hidden" not in str(refused.value)


def test_pod_settings_are_loaded(tmp_path: Path) -> None:
    facts = load(
        tmp_path,
        EMBERLINE_STATIC="/srv/static",
        EMBERLINE_L2_PASSWORD_FILE="/keys/l2",
        EMBERLINE_TARGETS_TOKEN_FILE="/keys/token",
        EMBERLINE_INSTALL_ID="one-of-many",
        EMBERLINE_ADMIN="0.0.0.0:9100",
        EMBERLINE_LOG_FORMAT="json",
        EMBERLINE_LOG_LEVEL="warning",
    )
    assert [str(facts.static_root), str(facts.l2_password_file), str(facts.targets_token_file)] == [
        *("/srv/static", "/keys/l2", "/keys/token")
    ]
    assert (facts.install_id, facts.admin) == ("one-of-many", "0.0.0.0:9100")
    assert (facts.log_format, facts.log_level) == ("json", "WARNING")


@pytest.mark.parametrize("wrong", ["9100", "host:", ":9100", "host:99999", "host:x"])
def test_invalid_admin_address(tmp_path: Path, wrong: str) -> None:
    with pytest.raises(SettingError, match="EMBERLINE_ADMIN"):
        load(tmp_path, EMBERLINE_ADMIN=wrong)


def test_storage_of_endpoint_keys(tmp_path: Path) -> None:
    assert load(tmp_path).keys == "file"
    assert load(tmp_path, EMBERLINE_PROVISIONER="kubernetes").keys == "database"
    assert load(tmp_path, EMBERLINE_PROVISIONER="kubernetes", EMBERLINE_KEYS="file").keys == "file"


def test_prometheus_login_follows_the_given_settings(tmp_path: Path) -> None:
    file = {"PROMETHEUS_BEARER_TOKEN_FILE": str(tmp_path / "token")}
    bearer = environment.prometheus_login(file)
    assert (bearer.auth, bearer.secret, bearer.secret_file) == ("bearer", "", tmp_path / "token")
    basic = environment.prometheus_login({"PROMETHEUS_USERNAME": "jo", "PROMETHEUS_PASSWORD": "p"})
    assert (basic.auth, basic.username, basic.secret) == ("basic", "jo", "p")
    assert "secret='p'" not in repr(basic)
    assert environment.prometheus_login({"PROMETHEUS_SIGV4_REGION": "eu-1"}).auth == "sigv4"
    assert environment.prometheus_login({"PROMETHEUS_CERT_FILE": "/c"}).auth == "mtls"
    with pytest.raises(environment.SettingError, match="keep one way to log in"):
        environment.prometheus_login({**file, "PROMETHEUS_USERNAME": "jo"})
    with pytest.raises(environment.SettingError, match="keep only one of the two"):
        environment.prometheus_login({**file, "PROMETHEUS_BEARER_TOKEN": "t"})


def test_prometheus_retention_uses_prometheus_units() -> None:
    assert str(environment.retention({})) == "30d, 10GB at most"
    given = {"EMBERLINE_PROMETHEUS_RETENTION": "1y", "EMBERLINE_PROMETHEUS_RETENTION_SIZE": "0"}
    assert str(environment.retention(given)) == "1y"
    for name in given:
        with pytest.raises(environment.SettingError, match=name):
            environment.retention({name: "for ever"})


def test_user_file_folder_excludes_console_secrets(tmp_path: Path) -> None:
    assert load(tmp_path).l2_secrets == tmp_path / "var" / "secrets" / "l2"
    key = tmp_path / "keys" / "django"
    key.parent.mkdir()
    key.write_text("x" * 50)
    for folder in ("/", str(tmp_path / "var"), str(tmp_path / "var" / "secrets")):
        with pytest.raises(SettingError, match="EMBERLINE_L2_SECRETS"):
            load(tmp_path, EMBERLINE_L2_SECRETS=folder)
    with pytest.raises(SettingError, match="is inside it"):
        load(tmp_path, EMBERLINE_L2_SECRETS=str(key.parent), DJANGO_SECRET_KEY_FILE=str(key))
