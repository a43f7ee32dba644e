"""What the processes of a running product were told, for commands typed on the same machine.

`emberline cost` asks the same Prometheus, database and broker as the console beside it only if it
knows what `make up` chose. Promises that what is kept holds no secret (only the names of the files
with them), is its owner's alone, counts while that very supervisord runs and no longer, and that
whatever the caller's environment says counts more. Must not know what the settings mean.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping

import psutil

from console.launcher.layout import ROOT, Layout, default_layout
from console.processkit.files import write_private

_SETTINGS = ("ALERTMANAGER_", "DATABASE_", "DJANGO_", "EMBERLINE_", "PROMETHEUS_", "REDIS_")
_SECRET = ("_KEY", "_OIDC", "_PASSWORD", "_SECRET", "_TOKEN", "_URL")
"""Ends of names whose values may be or hold a secret; a URL may hold a password."""
_ADDRESSES = ("ALERTMANAGER_URL", "EMBERLINE_PUBLIC_URL", "PROMETHEUS_URL")
_CLIENTS = (
    *("EMBERLINE_ALLOW_HTTP", "EMBERLINE_CA_FILE", "EMBERLINE_PROFILE", "EMBERLINE_TOKEN_FILE"),
)
"""Of a command line which asks a console, as it may have been where this one was started."""
_ONE_SOURCE = ("PROMETHEUS_", "EMBERLINE_PROMETHEUS_")
"""Where metrics come from and how to log in there: all of one hand or none."""


def keep(layout: Layout, supervisor: int, env: Mapping[str, str]) -> None:
    """`env` is what the console's programs have, inherited or set."""
    told = {name: _lasting(name, value) for name, value in env.items() if _worth(name, value)}
    text = json.dumps({"supervisor": supervisor, "environment": told}, indent=1, sort_keys=True)
    write_private(layout.told, text)


def bind(layout: Layout, supervisor: int) -> None:
    """What was kept before supervisord had a pid counts from now on."""
    try:
        kept = json.loads(layout.told.read_text())
        if kept["supervisor"] != supervisor:
            kept["supervisor"] = supervisor
            write_private(layout.told, json.dumps(kept, indent=1, sort_keys=True))
    except (OSError, ValueError, KeyError, TypeError):
        return  # commands typed beside it then ask with their own environment


def forget(layout: Layout) -> None:
    layout.told.unlink(missing_ok=True)


def adopt(env: MutableMapping[str, str]) -> None:
    """Complete the environment of this process by what the product beside it was told, if one
    runs. A name that is there stays, though it be empty, and with it what it belongs to."""
    layout = default_layout()
    said = {_belongs(name) for name in env}
    for name, value in _running(layout).items():
        if _belongs(name) not in said:
            env[name] = value


def supervisor_pid(layout: Layout) -> int:
    """supervisord's pid, 0 if it does not run. A pid file alone proves nothing: pids return."""
    try:
        pid = int((layout.run / "supervisord.pid").read_text())
        command = " ".join(psutil.Process(pid).cmdline())
    except (OSError, ValueError, psutil.Error):
        return 0
    return pid if "supervisor" in command and str(layout.var) in command else 0


def _running(layout: Layout) -> dict[str, str]:
    """Nothing of a product which ended without `down`, nor of a run before the present one."""
    try:
        kept = json.loads(layout.told.read_text())
        pid, told = kept["supervisor"], dict(kept["environment"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    if not pid or pid != supervisor_pid(layout):
        return {}
    return {name: value for name, value in told.items() if isinstance(value, str)}


def _worth(name: str, value: str) -> bool:
    if name in _CLIENTS or not (name == "WORKERS" or name.startswith(_SETTINGS)):
        return False
    return not value or not name.endswith(_SECRET) or (name in _ADDRESSES and "@" not in value)


def _lasting(name: str, value: str) -> str:
    """The console's programs work in ROOT, a command anywhere."""
    return str(ROOT / value) if value and name.endswith("_FILE") else value


def _belongs(name: str) -> str:
    if name.startswith(_ONE_SOURCE):
        return "PROMETHEUS"
    return name.removesuffix("_FILE")
