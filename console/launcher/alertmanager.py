"""Alertmanager of this installation: its program, its files and its arguments.

The console writes `alertmanager.yml` while it runs (dashboards/alerts/alertmanager/config_file.py).
Every request needs the user `emberline`: the API shows the receivers' URLs.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import bcrypt

from console.core.environment import generated_secret
from console.launcher.layout import Layout
from console.launcher.tools import unpack_debian_package
from console.processkit.files import write_private

USER = "emberline"
_NAMES = ("alertmanager", "prometheus-alertmanager")
_DEBIAN_TEMPLATES = Path("/usr/share/prometheus/alertmanager")
"""Where Debian's program reads its default templates; other builds contain them."""
_FIRST = "route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"


def find_server(layout: Layout) -> Path | None:
    """Return Alertmanager from PATH, else one unpacked earlier under var/tools."""
    on_path = next(filter(None, map(shutil.which, _NAMES)), None)
    if on_path:
        return Path(on_path)
    unpacked = layout.tools / "usr" / "bin" / _NAMES[1]
    return unpacked if unpacked.is_file() and _DEBIAN_TEMPLATES.is_dir() else None


def find_amtool(layout: Layout) -> Path | None:
    on_path = shutil.which("amtool")
    unpacked = layout.tools / "usr" / "bin" / "amtool"
    if on_path:
        return Path(on_path)
    return unpacked if unpacked.is_file() else None


def ensure_server(layout: Layout) -> Path | None:
    """Return Alertmanager, unpacked from Debian's package if necessary; None if unavailable.

    The installed package would start its own service on all interfaces. Only root can provide the
    folder of its templates.
    """
    server = find_server(layout)
    if server is None and os.geteuid() == 0 and shutil.which("apt-get") and shutil.which("dpkg"):
        unpack_debian_package(layout, _NAMES[1])
        templates = layout.tools / "usr" / "share" / "prometheus" / "alertmanager"
        shutil.copytree(templates, _DEBIAN_TEMPLATES, dirs_exist_ok=True)
        server = find_server(layout)
    return server


def password_file(layout: Layout) -> Path:
    return layout.secrets / "alertmanager_password"


def write_files(layout: Layout) -> None:
    layout.alertmanager.mkdir(parents=True, exist_ok=True)
    write_configuration(layout.alertmanager, generated_secret(password_file(layout)))


def write_configuration(folder: Path, password: str) -> None:
    """Write the web configuration, and `alertmanager.yml` if the console has written none yet."""
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(10)).decode()
    write_private(folder / "web.yml", f"basic_auth_users: {{{USER}: '{hashed}'}}\n")
    config = folder / "alertmanager.yml"
    if not config.is_file():
        write_private(config, _FIRST)


def arguments(layout: Layout, server: Path, port: int, console_url: str) -> tuple[str, ...]:
    return (
        # Alertmanager 0.25 logs the URL of a webhook that does not respond.
        *(sys.executable, "-m", "console.launcher.redacted_log", str(server)),
        f"--config.file={layout.alertmanager / 'alertmanager.yml'}",
        f"--web.config.file={layout.alertmanager / 'web.yml'}",
        f"--storage.path={layout.alertmanager / 'data'}",
        "--data.retention=720h",
        # What a kill loses of new silences.
        "--data.maintenance-interval=1m",
        f"--web.listen-address=127.0.0.1:{port}",
        # Links in notifications lead to the console's page of alerts.
        f"--web.external-url={console_url}/alerts/",
        "--web.route-prefix=/",
        "--cluster.listen-address=",
    )
