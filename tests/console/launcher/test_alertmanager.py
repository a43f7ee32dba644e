"""Alertmanager as `make up` starts it: password, log without secrets, links to the console."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from console.launcher import alertmanager as launcher
from console.launcher.layout import ROOT, Layout
from console.launcher.redacted_log import redact
from tests.support.alertmanager import RunningAlertmanager
from tests.support.ports import free_port
from tests.support.waiting import until


def test_every_request_needs_the_password(alertmanager: RunningAlertmanager) -> None:
    for path in ("/api/v2/status", "/metrics", "/-/ready", "/"):
        assert httpx.get(f"{alertmanager.url}{path}").status_code == 401
    assert alertmanager.get("/api/v2/status").status_code == 200
    web = alertmanager.file.with_name("web.yml")
    assert alertmanager.auth[1] not in web.read_text()
    assert web.stat().st_mode & 0o077 == 0


def test_existing_configuration_is_kept(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.prepare()
    launcher.write_files(layout)
    file = layout.alertmanager / "alertmanager.yml"
    file.write_text("route: {receiver: mine}\n")
    launcher.write_files(layout)
    assert "mine" in file.read_text()


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b'Post \\"https://h.example/T?a=b\\": x', b'Post \\"https://h.example/...\\": x'),
        (b"https://user:T0KEN@h.example/x", b"https://h.example/..."),
        (b"https://h.example", b"https://h.example"),
        (b"no URL here", b"no URL here"),
    ],
)  # fmt: skip
def test_log_has_no_path_of_a_url(line: bytes, shown: bytes) -> None:
    assert redact(line) == shown


def test_failed_webhook_is_logged_without_its_path(tmp_path: Path) -> None:
    """Alertmanager 0.25 logs it; the program around it shortens it and ends with it."""
    server = launcher.find_server(Layout(ROOT / "var"))
    assert server is not None
    layout = Layout(tmp_path)
    layout.prepare()
    launcher.write_files(layout)
    receiver = {
        "name": "hook",
        "webhook_configs": [{"url": f"http://127.0.0.1:{free_port()}/T0KEN"}],
    }
    config = {"route": {"receiver": "hook", "group_wait": "0s"}, "receivers": [receiver]}
    (layout.alertmanager / "alertmanager.yml").write_text(json.dumps(config))
    port = free_port()
    argv = launcher.arguments(layout, server, port, "http://console.example.org")
    assert argv[0] == sys.executable
    log = tmp_path / "alertmanager.log"
    with log.open("wb") as out:
        process = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        login = launcher.USER, launcher.password_file(layout).read_text()
        url = f"http://127.0.0.1:{port}/api/v2/alerts"
        alert = [{"labels": {"alertname": "A"}}]

        def accepted() -> bool:
            try:
                return httpx.post(url, json=alert, auth=login).status_code == 200
            except httpx.HTTPError:
                return False

        until(accepted, what="Alertmanager")
        until(lambda: "will retry later" in log.read_text(), what="the failure in the log")
        assert "T0KEN" not in log.read_text()
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait(30)
