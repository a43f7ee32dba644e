"""`make up` with given secrets, signals and invalid settings."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from console.core import environment as console_environment
from console.launcher import lifecycle, processes, stack
from console.launcher.layout import Layout, remembered_port
from console.launcher.processes import SECRET_SETTINGS, Services
from console.launcher.progress import StepFailed, print_line

SERVICES = Services("127.0.0.1", 8000, "simulated", valkey=None, prometheus=None)
SECRETS = {
    "DATABASE_URL": "postgres://u:hidden-1@db/e",
    "DJANGO_SECRET_KEY": "hidden-2",
    "PROMETHEUS_URL": "http://u:hidden-3@metrics",
    "PROMETHEUS_BEARER_TOKEN": "hidden-8",
    "PROMETHEUS_PASSWORD": "hidden-9",
    "REDIS_URL": "redis://:hidden-4@broker:6379/0",
    "EMBERLINE_DATABASE_PASSWORD": "hidden-5",
    "EMBERLINE_REDIS_PASSWORD": "hidden-6",
    "EMBERLINE_SMTP_PASSWORD": "hidden-10",
    "EMBERLINE_OIDC": "providers: [{secret: hidden-11}]",
    "EMBERLINE_OIDC_CLIENT_SECRET": "hidden-12",
    "EMBERLINE_ENCRYPTION_KEY": "hidden-7-which-is-long-enough-to-be-a-key",
}


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    made = Layout(tmp_path / "var")
    made.prepare()
    for name in SECRET_SETTINGS:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)
    return made


def test_given_secrets_reach_the_console_only_by_file(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(SECRETS) == set(SECRET_SETTINGS)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    processes.keep_given_secrets(layout)
    config = processes.write_config(layout, SERVICES).read_text()
    assert "hidden" not in config
    seen = {**os.environ, **processes.console_environment(layout, SERVICES)}
    for name, value in SECRETS.items():
        assert console_environment.text(seen, name) == value
        assert Path(seen[f"{name}_FILE"]).stat().st_mode & 0o777 == 0o600


def test_embedded_prometheus_gets_the_alert_rules(layout: Layout) -> None:
    remembered_port(layout, "prometheus", 19090)
    services = Services("127.0.0.1", 8000, "simulated", None, prometheus=Path("prometheus"))
    processes.write_config(layout, services)
    config = yaml.safe_load((layout.prometheus / "prometheus.yml").read_text())
    rules, records = config["rule_files"]
    assert rules == str(layout.prometheus / "alerts.yml")
    assert "lmcache:num_lookup_hits_total" in Path(records).read_text()
    named = {
        rule["alert"] for rule in yaml.safe_load(Path(rules).read_text())["groups"][0]["rules"]
    }
    assert {"RoutingFallback", "IndexStale", "KvProbeFailing"} <= named


def test_embedded_prometheus_has_the_configured_retention(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    remembered_port(layout, "prometheus", 19090)
    monkeypatch.setenv("EMBERLINE_PROMETHEUS_RETENTION", "90d")
    monkeypatch.setenv("EMBERLINE_PROMETHEUS_RETENTION_SIZE", "2GB")
    services = Services("127.0.0.1", 8000, "simulated", None, prometheus=Path("prometheus"))
    (argv,) = (
        one.argv for one in processes.service_programs(layout, services) if one.name == "prometheus"
    )
    flags = {"--storage.tsdb.retention.time=90d", "--storage.tsdb.retention.size=2GB"}
    assert flags <= set(argv)
    limits = {one.partition("=")[0] for one in argv if one.startswith("--query.")}
    assert limits == {"--query.timeout", "--query.max-samples", "--query.max-concurrency"}
    assert processes.console_environment(layout, services)["EMBERLINE_PROMETHEUS_EMBEDDED"] == "1"


def test_removed_settings_are_forgotten(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", SECRETS["DATABASE_URL"])
    processes.keep_given_secrets(layout)
    monkeypatch.delenv("DATABASE_URL")
    processes.keep_given_secrets(layout)
    assert "DATABASE_URL_FILE" not in processes.console_environment(layout, SERVICES)


def test_supervisord_children_inherit_no_secret(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    given: dict[str, str] = {}

    class Started:
        def poll(self) -> None:
            return None

    def popen(_argv: Any, *, env: dict[str, str], **_more: Any) -> Started:
        given.update(env)
        return Started()

    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(stack, "is_running", lambda _layout: True)
    stack.start(layout, layout.supervisor / "supervisord.conf")
    assert given[stack.MARK] == str(layout.var)
    assert given["PATH"] == os.environ["PATH"]
    assert not [value for value in given.values() if "hidden" in value]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_during_the_start_leaves_nothing(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    before = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    # A background test run inherits ignored INT and HUP, which `up` respects.
    for each in before:
        signal.signal(each, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stopped: list[Layout] = []
    monkeypatch.setattr(lifecycle, "_prepare", lambda _layout: SERVICES)
    monkeypatch.setattr(lifecycle, "_down", lambda given: stopped.append(given) or 0)
    monkeypatch.setattr(stack, "start", lambda *_: signal.raise_signal(number))
    try:
        assert lifecycle.up(layout, detach=True) == 130
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert stopped == [layout]


@pytest.mark.parametrize("value", ["abc", "99999", "-1", "0"])
def test_invalid_port_is_rejected_with_a_message(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("EMBERLINE_PORT", value)
    with pytest.raises(StepFailed, match=r"EMBERLINE_PORT=.*1 to 65535"):
        lifecycle._port()


def test_valkey_that_outlived_supervisord_is_found(layout: Layout, tmp_path: Path) -> None:
    """Valkey overwrites its environment, including the mark by which other processes are found."""
    binary = tmp_path / "valkey-server"
    shutil.copy2(shutil.which("sleep") or "/bin/sleep", binary)
    ours, other = (
        subprocess.Popen([binary, "60"], cwd=where, env={}) for where in (layout.run, tmp_path)
    )
    try:
        assert [process.pid for process in stack.find_leftovers(layout)] == [ours.pid]
        stack.kill_leftovers(layout)
        assert not psutil.pid_exists(ours.pid)
        assert other.poll() is None
    finally:
        for process in (ours, other):
            process.kill()
            process.wait()


def test_stop_does_not_wait_for_a_zombie_supervisord(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C the launcher is its parent and reaps it only on exit."""
    waited: list[bool] = []

    def until(condition: Callable[[], bool], *_more: float) -> bool:
        waited.append(condition())
        return waited[-1]

    child = subprocess.Popen([shutil.which("true") or "/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # exited, not reaped
    monkeypatch.setattr(stack, "supervisor_pid", lambda _layout: child.pid)
    monkeypatch.setattr(stack, "wait_until", until)
    monkeypatch.setattr(os, "kill", lambda *_: None)
    assert stack.stop(layout) == []
    assert waited == [True]
    child.wait()


def test_foreign_host_is_rejected_with_a_message(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBERLINE_HOST", "192.0.2.1")
    monkeypatch.setattr(lifecycle, "_workers", lambda _layout: "simulated")
    monkeypatch.setattr(lifecycle, "_valkey", lambda _layout: None)
    monkeypatch.setattr(lifecycle, "_prometheus", lambda _layout: None)
    with pytest.raises(StepFailed, match="not an address of this machine"):
        lifecycle._prepare(layout)


def test_state_is_private_to_the_user(tmp_path: Path) -> None:
    """The database contains sessions: reading it allows a login."""
    layout = Layout(tmp_path / "var")
    layout.var.mkdir(mode=0o755)
    layout.prepare()
    for folder in (layout.var, layout.secrets, layout.run):
        assert folder.stat().st_mode & 0o077 == 0


def test_leftovers_of_an_earlier_run_are_stopped_before_the_port_check(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = subprocess.Popen(
        [shutil.which("sleep") or "/bin/sleep", "60"], env={stack.MARK: str(layout.var)}
    )

    def prepare(_layout: Layout) -> Services:
        assert not psutil.pid_exists(left.pid)  # already gone
        raise StepFailed("far enough")

    monkeypatch.setattr(lifecycle, "_stop_on_signals", lambda: None)
    monkeypatch.setattr(lifecycle, "_prepare", prepare)
    try:
        with pytest.raises(StepFailed, match="far enough"):
            lifecycle.up(layout, detach=True)
    finally:
        left.kill()
        left.wait()


@pytest.mark.parametrize("possible", [True, False])
def test_workers_are_real_where_vllm_is_available(
    layout: Layout,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    possible: bool,
) -> None:
    prepared = []

    def prepare(wanted: Layout) -> None:
        prepared.append(wanted)
        if not possible:
            raise StepFailed("no room on this disk")

    monkeypatch.setenv("WORKERS", "vllm")
    monkeypatch.setattr(lifecycle.vllm_environment, "prepare", prepare)
    assert lifecycle._workers(layout) == ("vllm" if possible else "simulated")
    assert prepared == [layout]
    printed = capsys.readouterr().out
    assert ("no room on this disk" in printed) is not possible


def test_closed_terminal_does_not_prevent_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, _text: str) -> int:
            raise OSError(5, "Input/output error")

        def flush(self) -> None:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("sys.stdout", Gone())
    print_line("Stopping")


@pytest.mark.parametrize("facts", ['{"valkey_port": "x"}', '{"valkey_port": 99999}', "[]", "{"])
def test_state_edited_by_hand_does_not_prevent_a_stop(layout: Layout, facts: str) -> None:
    layout.facts.write_text(facts)
    assert remembered_port(layout, "valkey", 20500) >= 20500


def test_taken_internal_port_moves_with_a_notice(
    layout: Layout, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        layout.facts.write_text(json.dumps({"prometheus_port": port}))
        moved = remembered_port(layout, "prometheus", 20500)
    assert moved != port
    notice = f"Port {port} of prometheus is in use by pid {os.getpid()} ("
    assert notice in capsys.readouterr().out
    assert remembered_port(layout, "prometheus", 20500) == moved
    assert capsys.readouterr().out == ""


def test_console_port_never_moves(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "_workers", lambda _layout: "simulated")
    monkeypatch.setattr(lifecycle, "_valkey", lambda _layout: None)
    monkeypatch.setattr(lifecycle, "_prometheus", lambda _layout: None)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        monkeypatch.setenv("EMBERLINE_PORT", str(stranger.getsockname()[1]))
        held = rf"is in use by pid {os.getpid()} \(.*EMBERLINE_PORT="
        with pytest.raises(StepFailed, match=held):
            lifecycle._prepare(layout)
