"""Environment of the running product, for commands on the same machine.

`emberline cost` needs the Prometheus, database and broker chosen by `make up`. The stored
environment contains no secret (only file names), is readable by its owner only, is valid only
while that supervisord runs, and yields to the caller's environment.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping

import psutil

from console.launcher.layout import ROOT, Layout, default_layout
from console.processkit.files import write_private

_SETTINGS = ("ALERTMANAGER_", "DATABASE_", "DJANGO_", "EMBERLINE_", "PROMETHEUS_", "REDIS_")
_SECRET = ("_KEY", "_OIDC", "_PASSWORD", "_SECRET", "_TOKEN", "_URL")
"""Suffixes of variables that may contain a secret; a URL may contain a password."""
_ADDRESSES = (
    *("ALERTMANAGER_URL", "EMBERLINE_PUBLIC_URL", "EMBERLINE_STATE_STORE_URL", "PROMETHEUS_URL"),
)
_CLIENTS = (
    *("EMBERLINE_ALLOW_HTTP", "EMBERLINE_CA_FILE", "EMBERLINE_PROFILE", "EMBERLINE_TOKEN_FILE"),
)
"""Settings of the CLI, possibly set in the shell that started the product; not stored."""
_ONE_SOURCE = ("PROMETHEUS_", "EMBERLINE_PROMETHEUS_")
"""Variables for metrics access, adopted together or not at all."""


def save_environment(layout: Layout, supervisor: int, env: Mapping[str, str]) -> None:
    """Store `env`, the full environment of the console's programs."""
    relevant = {
        name: _absolute(name, value) for name, value in env.items() if _is_relevant(name, value)
    }
    text = json.dumps({"supervisor": supervisor, "environment": relevant}, indent=1, sort_keys=True)
    write_private(layout.kept_environment, text)


def bind_supervisor(layout: Layout, supervisor: int) -> None:
    """Validate the stored environment for this supervisord."""
    try:
        document = json.loads(layout.kept_environment.read_text())
        if document["supervisor"] != supervisor:
            document["supervisor"] = supervisor
            write_private(layout.kept_environment, json.dumps(document, indent=1, sort_keys=True))
    except (OSError, ValueError, KeyError, TypeError):
        return  # commands then use only their own environment


def clear_environment(layout: Layout) -> None:
    layout.kept_environment.unlink(missing_ok=True)


def adopt_environment(env: MutableMapping[str, str]) -> None:
    """Complete this process's environment from the running product. An existing variable, even if
    empty, is kept together with those that belong to it.
    """
    layout = default_layout()
    names = {_base_name(name) for name in env}
    for name, value in _running_environment(layout).items():
        if _base_name(name) not in names:
            env[name] = value


def supervisor_pid(layout: Layout) -> int:
    """Return supervisord's pid, 0 if not running. Verify it: pids are reused."""
    try:
        pid = int((layout.run / "supervisord.pid").read_text())
        command = " ".join(psutil.Process(pid).cmdline())
    except (OSError, ValueError, psutil.Error):
        return 0
    return pid if "supervisor" in command and str(layout.var) in command else 0


def _running_environment(layout: Layout) -> dict[str, str]:
    """Ignore the environment of an earlier run or of a product that crashed."""
    try:
        document = json.loads(layout.kept_environment.read_text())
        pid, environment = document["supervisor"], dict(document["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if not pid or pid != supervisor_pid(layout):
        return {}
    return {name: value for name, value in environment.items() if isinstance(value, str)}


def _is_relevant(name: str, value: str) -> bool:
    if name in _CLIENTS or not (name == "WORKERS" or name.startswith(_SETTINGS)):
        return False
    return not value or not name.endswith(_SECRET) or (name in _ADDRESSES and "@" not in value)


def _absolute(name: str, value: str) -> str:
    """Make a path absolute: console programs run in ROOT, commands anywhere."""
    return str(ROOT / value) if value and name.endswith("_FILE") else value


def _base_name(name: str) -> str:
    if name.startswith(_ONE_SOURCE):
        return "PROMETHEUS"
    return name.removesuffix("_FILE")
