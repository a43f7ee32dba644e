"""Alertmanager on a free port, configured as the product configures it."""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from console.launcher import alertmanager as launcher
from console.launcher.layout import ROOT, Layout
from console.provisioners.local.supervisord import log_path
from tests.support.ports import free_ports
from tests.support.waiting import until

CONSOLE = "http://console.example.org:8000"


@dataclass(frozen=True)
class RunningAlertmanager:
    url: str
    file: Path
    password_file: Path

    @property
    def auth(self) -> tuple[str, str]:
        return launcher.USER, self.password_file.read_text().strip()

    def get(self, path: str) -> Any:
        return httpx.get(f"{self.url}{path}", auth=self.auth)

    def alerts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.get("/api/v2/alerts").json()
        return found

    def settings(self, emberline: Any) -> Any:
        """Return the console's settings with this Alertmanager."""
        return dataclasses.replace(
            emberline,
            var=self.file.parents[1],
            alertmanager_url=self.url,
            alertmanager_username=launcher.USER,
            alertmanager_password_file=self.password_file,
            alertmanager_file=self.file,
        )


@contextmanager
def running_alertmanager(folder: Path) -> Iterator[RunningAlertmanager]:
    server = launcher.find_server(Layout(ROOT / "var"))
    assert server is not None, "No Alertmanager: make test-tools"
    layout = Layout(folder / "var")
    layout.prepare()
    launcher.write_files(layout)
    (port,) = free_ports(1)
    argv = launcher.arguments(layout, server, port, CONSOLE)
    made = RunningAlertmanager(
        *(f"http://127.0.0.1:{port}", layout.alertmanager / "alertmanager.yml"),
        launcher.password_file(layout),
    )
    with log_path(layout.var, "alertmanager").open("w") as log:
        # Without the filter of its log, which costs an interpreter's start.
        process = subprocess.Popen(
            argv[argv.index(str(server)) :], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        until(lambda: _ready(made, process), what="Alertmanager")
        yield made
    finally:
        process.kill()
        process.wait(60)


def _ready(made: RunningAlertmanager, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "Alertmanager ended at once"
    try:
        return made.get("/-/ready").status_code == 200
    except httpx.HTTPError:
        return False


@pytest.fixture
def alertmanager(tmp_path: Path, settings: Any) -> Iterator[RunningAlertmanager]:
    """A real Alertmanager, used by the console of this test."""
    with running_alertmanager(tmp_path) as made:
        settings.EMBERLINE = made.settings(settings.EMBERLINE)
        yield made
