"""Commands beside a running product use its environment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.core import environment
from console.launcher import lifecycle, processes, runtime_environment, stack
from console.launcher.layout import ROOT, Layout, remembered_port
from console.launcher.processes import Services
from tests.support.waiting import until

SECRETS = {
    "DATABASE_URL": "postgres://u:hidden-1@db/e",
    "PROMETHEUS_URL": "http://u:hidden-2@metrics",
    "ALERTMANAGER_URL": "http://u:hidden-3@alerts",
    "EMBERLINE_ENCRYPTION_KEY": "hidden-4",
    "EMBERLINE_SMTP_PASSWORD": "hidden-5",
    "EMBERLINE_OIDC": "hidden-6",
    "EMBERLINE_OIDC_CLIENT_SECRET": "hidden-7",
    "EMBERLINE_ADMIN_PASSWORD": "hidden-8",
    "EMBERLINE_TOKEN": "hidden-9",
    "AWS_SECRET_ACCESS_KEY": "hidden-10",
}

CLIENTS = {"EMBERLINE_PROFILE": "west", "EMBERLINE_TOKEN_FILE": "/t", "EMBERLINE_CA_FILE": "/c"}


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    made = Layout(tmp_path / "var")
    made.prepare()
    monkeypatch.setenv("EMBERLINE_VAR", str(made.var))
    return made


@pytest.fixture
def supervisor(layout: Layout) -> Iterator[subprocess.Popen[bytes]]:
    """Simulate supervisord: pid file, process name, folder."""
    argv = [sys.executable, "-ISc", "input()", "supervisord", str(layout.var)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as process:
        (layout.run / "supervisord.pid").write_text(str(process.pid))
        until(lambda: runtime_environment.supervisor_pid(layout) == process.pid)
        yield process
        process.kill()


def test_command_uses_the_environment_of_the_running_console(
    layout: Layout, supervisor: subprocess.Popen[bytes]
) -> None:
    port = remembered_port(layout, "prometheus", 19090)
    services = Services("127.0.0.1", 8123, "simulated", None, prometheus=Path("prometheus"))
    (layout.secrets / "redis_url").write_text("redis://:hidden@127.0.0.1:16379/0")
    given = {"ALERTMANAGER_URL": "http://alerts:9093", "PATH": "/usr/bin", "HOME": "/home/x"}
    runtime_environment.save_environment(
        layout, supervisor.pid, given | processes.console_environment(layout, services)
    )
    assert layout.kept_environment.stat().st_mode & 0o777 == 0o600
    assert "hidden" not in layout.kept_environment.read_text()
    env = {"EMBERLINE_VAR": str(layout.var)}
    runtime_environment.adopt_environment(env)
    assert set(env).isdisjoint({"PATH", "HOME"})
    seen = environment.load(env, ROOT)
    assert seen.prometheus_url == f"http://127.0.0.1:{port}"
    assert seen.prometheus_embedded
    assert seen.alertmanager_url == "http://alerts:9093"
    assert seen.redis_url == "redis://:hidden@127.0.0.1:16379/0"
    assert (seen.port, seen.workers) == (8123, "simulated")


def test_secrets_and_client_settings_are_not_kept(
    layout: Layout, supervisor: subprocess.Popen[bytes]
) -> None:
    runtime_environment.save_environment(
        layout, supervisor.pid, SECRETS | CLIENTS | {"EMBERLINE_KEYS": "file"}
    )
    env: dict[str, str] = {}
    runtime_environment.adopt_environment(env)
    assert env == {"EMBERLINE_KEYS": "file"}
    assert "hidden" not in layout.kept_environment.read_text()


def test_file_relative_to_the_console_folder_is_found(
    layout: Layout, supervisor: subprocess.Popen[bytes]
) -> None:
    files = {"DATABASE_URL_FILE": "here/url", "PROMETHEUS_CA_FILE": "/etc/ca.pem"}
    runtime_environment.save_environment(layout, supervisor.pid, files)
    env: dict[str, str] = {}
    runtime_environment.adopt_environment(env)
    assert env["DATABASE_URL_FILE"] == str(ROOT / "here/url")
    assert env["PROMETHEUS_CA_FILE"] == "/etc/ca.pem"


def test_environment_of_the_caller_has_precedence(
    layout: Layout, supervisor: subprocess.Popen[bytes]
) -> None:
    ours = {
        "PROMETHEUS_URL": "http://127.0.0.1:19090",
        "EMBERLINE_PROMETHEUS_EMBEDDED": "1",
        "PROMETHEUS_TENANT": "ours",
        "REDIS_URL": "",
        "REDIS_URL_FILE": "/run/redis",
        "WORKERS": "simulated",
    }
    runtime_environment.save_environment(layout, supervisor.pid, ours)
    env = {"PROMETHEUS_URL": "http://theirs", "REDIS_URL": "redis://theirs", "WORKERS": ""}
    runtime_environment.adopt_environment(env)
    # Our tenant, or a file beside a URL, would contradict the given values.
    assert env == {"PROMETHEUS_URL": "http://theirs", "REDIS_URL": "redis://theirs", "WORKERS": ""}


def test_environment_of_a_dead_product_is_ignored(
    layout: Layout, supervisor: subprocess.Popen[bytes]
) -> None:
    runtime_environment.save_environment(layout, supervisor.pid, {"WORKERS": "simulated"})
    supervisor.kill()
    supervisor.wait()
    env: dict[str, str] = {}
    runtime_environment.adopt_environment(env)
    assert env == {}


def test_environment_of_the_previous_run_is_ignored(
    layout: Layout, supervisor: subprocess.Popen[bytes]
) -> None:
    """It was killed before cleanup; the current run has its pid file and another pid."""
    runtime_environment.save_environment(layout, supervisor.pid + 1, {"WORKERS": "simulated"})
    env: dict[str, str] = {}
    runtime_environment.adopt_environment(env)
    assert env == {}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"supervisor": 0, "environment": {}}', '{"environment": 1}']
)
def test_unreadable_file_stops_no_command(layout: Layout, text: str) -> None:
    layout.kept_environment.write_text(text)
    env: dict[str, str] = {}
    runtime_environment.adopt_environment(env)
    assert env == {}


def test_up_stores_and_down_removes_it(
    layout: Layout, supervisor: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBERLINE_PUBLIC_URL", "https://emberline.example.com")
    monkeypatch.setenv("EMBERLINE_ADMIN_PASSWORD", "hidden")
    monkeypatch.setattr(stack, "start", lambda *_: supervisor)
    monkeypatch.setattr(lifecycle, "_is_responding", lambda _url: True)
    monkeypatch.setattr(stack, "stop", lambda _layout: [])
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    services = Services("127.0.0.1", 8124, "simulated", valkey=None, prometheus=None)
    lifecycle._start(layout, services)
    kept = json.loads(layout.kept_environment.read_text())
    assert kept["environment"]["EMBERLINE_PUBLIC_URL"] == "https://emberline.example.com"
    assert kept["environment"]["EMBERLINE_PORT"] == "8124"
    assert "hidden" not in layout.kept_environment.read_text()
    assert lifecycle.down(layout) == 0
    assert not layout.kept_environment.exists()


@pytest.mark.parametrize("command", ["console/cli.py doctor", "manage.py check"])
def test_script_and_manage_py_read_it(
    layout: Layout, supervisor: subprocess.Popen[bytes], command: str
) -> None:
    """A rejected value shows that it was read before anything expensive is loaded."""
    runtime_environment.save_environment(layout, supervisor.pid, {"EMBERLINE_LOG_LEVEL": "LOUD"})
    env = {"PATH": os.environ["PATH"], "EMBERLINE_VAR": str(layout.var), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, *command.split()],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode
    assert "EMBERLINE_LOG_LEVEL='LOUD' is invalid" in done.stderr
