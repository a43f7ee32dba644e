"""The fixed programs of one machine and their configuration files.

No secret is in argv or in supervisord's file: programs read secrets from files. The local
provisioner adds endpoints' programs in conf.d.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console import programs as own
from console.core.environment import flag, retention, text
from console.launcher import alertmanager
from console.launcher.layout import ROOT, Layout, read_facts
from console.processkit.files import write_private
from console.provisioners.local.supervisord import Program, log_path, render_config
from dashboards.alerts.rules.rule_file import render as render_alerts
from dashboards.prometheus.config import recording_rules
from dashboards.prometheus.config.scrape_config import TARGETS_FILE, AlertmanagerTarget
from dashboards.prometheus.config.scrape_config import render as render_prometheus

# May contain secrets. Passed by file to the console's programs only, not to Prometheus, routers or
# workers.
SECRET_SETTINGS = (
    *("DATABASE_URL", "DJANGO_SECRET_KEY", "PROMETHEUS_URL", "REDIS_URL"),
    *("PROMETHEUS_BEARER_TOKEN", "PROMETHEUS_PASSWORD", "EMBERLINE_SMTP_PASSWORD"),
    *("EMBERLINE_DATABASE_PASSWORD", "EMBERLINE_ENCRYPTION_KEY", "EMBERLINE_REDIS_PASSWORD"),
    *("EMBERLINE_OIDC", "EMBERLINE_OIDC_CLIENT_SECRET"),
)


STORE_RIGHTS = (
    "resetkeys ~{emberline:* resetchannels &emberline:* -@all "
    "+ping +select +publish +subscribe +evalsha +script|load +get +set +time"
)
STORE_PASSWORD = "state_store_password"  # noqa: S105 (a file name)
STORE_USER = "routers"
"""User of the embedded Valkey with the rights of routers only (docs/routing-scale.md)."""


@dataclass(frozen=True, slots=True)
class Services:
    """Services of this run; a program is None if a URL was given or the program is missing."""

    host: str
    port: int
    workers: str
    valkey: Path | None
    prometheus: Path | None
    alertmanager: Path | None = None

    @property
    def url(self) -> str:
        """Return the console's address for a browser on this machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Services:
        """Restore from the last `up`; of the binaries only their presence is kept."""
        return cls(
            host=str(facts.get("host", "127.0.0.1")),
            port=int(facts.get("port", 8000)),
            workers=str(facts.get("workers", "vllm")),
            valkey=None,
            prometheus=Path("prometheus") if facts.get("prometheus_port") else None,
            alertmanager=Path("alertmanager") if facts.get("alertmanager_port") else None,
        )


def keep_given_secrets(layout: Layout) -> None:
    """Store secrets from the environment in files for the console's programs."""
    for name in SECRET_SETTINGS:
        value = os.environ.get(name)
        if value:
            write_private(_given_secret_path(layout, name), value)
        else:
            _given_secret_path(layout, name).unlink(missing_ok=True)


def without_secrets(given: Mapping[str, str]) -> dict[str, str]:
    """Return supervisord's environment, which every program inherits."""
    return {name: value for name, value in given.items() if name not in SECRET_SETTINGS}


def _given_secret_path(layout: Layout, name: str) -> Path:
    return layout.secrets / f"given_{name.lower()}"


def console_environment(layout: Layout, services: Services) -> dict[str, str]:
    """Return the environment of every console program; secrets by file only."""
    by_file = {
        key: value
        for name in SECRET_SETTINGS
        if _given_secret_path(layout, name).is_file()
        for key, value in ((name, ""), (f"{name}_FILE", str(_given_secret_path(layout, name))))
    }
    prometheus = ""
    if services.prometheus is not None:
        prometheus = f"http://127.0.0.1:{read_facts(layout)['prometheus_port']}"
    return {
        "EMBERLINE_VAR": str(layout.var),
        "EMBERLINE_HOST": services.host,
        "EMBERLINE_PORT": str(services.port),
        "EMBERLINE_VLLM_PYTHON": str(layout.vllm_python),
        "EMBERLINE_HTTPS": os.environ.get("EMBERLINE_HTTPS", ""),
        "EMBERLINE_ALLOWED_HOSTS": os.environ.get("EMBERLINE_ALLOWED_HOSTS", ""),
        "EMBERLINE_TRUSTED_ORIGINS": os.environ.get("EMBERLINE_TRUSTED_ORIGINS", ""),
        "EMBERLINE_ENGINE_PATH": str(read_facts(layout).get("engine_path", "")),
        "WORKERS": services.workers,
        "PROMETHEUS_URL": prometheus,
        "EMBERLINE_PROMETHEUS_EMBEDDED": "1" if prometheus else "",
        "EMBERLINE_ADMIN": "",  # several programs cannot share one address
        "REDIS_URL": "",
        "REDIS_URL_FILE": str(layout.secrets / "redis_url"),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "",
        "DJANGO_SETTINGS_MODULE": "console.settings",
        **_alertmanager(layout, services),
        **_state_store(layout, services),
        **by_file,
    }


def _alertmanager(layout: Layout, services: Services) -> dict[str, str]:
    if services.alertmanager is None:
        return {}
    return {
        "ALERTMANAGER_URL": f"http://127.0.0.1:{read_facts(layout)['alertmanager_port']}",
        "ALERTMANAGER_USERNAME": alertmanager.USER,
        "ALERTMANAGER_PASSWORD_FILE": str(alertmanager.password_file(layout)),
        "EMBERLINE_ALERTMANAGER_FILE": str(layout.alertmanager / "alertmanager.yml"),
    }


def _state_store(layout: Layout, services: Services) -> dict[str, str]:
    """Return the embedded Valkey as the installation's state store, unless another is set."""
    url = os.environ.get("EMBERLINE_STATE_STORE_URL", "")
    stored = read_facts(layout)
    port = stored.get("valkey_port")
    if url or services.valkey is None or not (port and stored.get("state_store")):
        return {}
    return {
        "EMBERLINE_STATE_STORE_URL": f"redis://127.0.0.1:{port}/0",
        "EMBERLINE_STATE_STORE_USER": STORE_USER,
        "EMBERLINE_STATE_STORE_PASSWORD_FILE": str(layout.secrets / STORE_PASSWORD),
        "EMBERLINE_STATE_STORE_CA_FILE": "",
    }


def service_programs(layout: Layout, services: Services) -> list[Program]:
    python = sys.executable
    shared = console_environment(layout, services)
    programs = []
    if services.valkey is not None:
        programs.append(
            Program("valkey", (str(services.valkey), str(_valkey_config(layout))), priority=1)
        )
    if services.prometheus is not None:
        programs.append(Program("prometheus", _prometheus_argv(layout, services), priority=1))
    if services.alertmanager is not None:
        port = read_facts(layout)["alertmanager_port"]
        public = text(os.environ, "EMBERLINE_PUBLIC_URL").rstrip("/") or services.url
        argv = alertmanager.arguments(layout, services.alertmanager, port, public)
        programs.append(Program("alertmanager", argv, priority=1))
    behind_proxy = flag(os.environ, "EMBERLINE_HTTPS")
    worker = {**shared, own.WORKER_SCHEDULES: "1"}  # so that no beat runs
    web = own.web_arguments(services.host, services.port, behind_proxy=behind_proxy)
    programs += [
        Program("web", (python, *web), env=shared, priority=10),
        Program("celery-worker", (python, *own.worker_arguments()), env=worker, priority=20),
    ]
    return programs


def write_config(layout: Layout, services: Services) -> Path:
    """Write the files of Alertmanager, Prometheus and supervisord; return the latter's path."""
    managers: tuple[AlertmanagerTarget, ...] = ()
    if services.alertmanager is not None:
        alertmanager.write_files(layout)
        address = f"127.0.0.1:{read_facts(layout)['alertmanager_port']}"
        password = str(alertmanager.password_file(layout))
        managers = (AlertmanagerTarget(address, alertmanager.USER, password),)
    if services.prometheus is not None:
        rules = layout.prometheus / "alerts.yml"
        if not rules.is_file():  # later written by the console
            write_private(rules, render_alerts())
        records = layout.prometheus / "recording.yml"
        write_private(records, recording_rules.render())
        token = str(layout.secrets / "targets_token")
        files = (str(rules), str(records))
        targets = str(layout.prometheus / TARGETS_FILE)
        config = render_prometheus(
            services.url, token, rule_files=files, targets_file=targets, alertmanagers=managers
        )
        write_private(layout.prometheus / "prometheus.yml", config)
    path = layout.supervisor / "supervisord.conf"
    write_private(path, render_config(layout.var, service_programs(layout, services), ROOT))
    return path


def write_valkey_config(layout: Layout, port: int, password: str, routers: str) -> None:
    """Write the broker's configuration, without persistence: messages may be lost. `routers`:
    password of the user through which routers share state, "" for none.
    """
    user = [f"user {STORE_USER} on >{routers} {STORE_RIGHTS}"] if routers else []
    lines = [
        "bind 127.0.0.1",
        f"port {port}",
        f"requirepass {password}",
        *user,
        "protected-mode yes",
        f"dir {layout.run}",
        'save ""',
        "appendonly no",
        "maxmemory 256mb",
        "maxmemory-policy noeviction",
        "daemonize no",
        "hz 1",  # wake-ups per second while idle
    ]
    write_private(_valkey_config(layout), "\n".join(lines) + "\n")


def _valkey_config(layout: Layout) -> Path:
    return layout.secrets / "valkey.conf"


def _prometheus_argv(layout: Layout, services: Services) -> tuple[str, ...]:
    limits = retention(os.environ)
    data = layout.prometheus / "data"
    return (
        # Moves unreadable storage aside, then becomes Prometheus.
        *(sys.executable, "-m", "console.launcher.metrics_store"),
        *(str(data), str(log_path(layout.var, "prometheus"))),
        str(services.prometheus),
        f"--config.file={layout.prometheus / 'prometheus.yml'}",
        f"--storage.tsdb.path={data}",
        f"--storage.tsdb.retention.time={limits.time}",
        f"--storage.tsdb.retention.size={limits.size}",
        # About 2 GB in total at full query concurrency.
        "--query.timeout=10s",
        "--query.max-samples=10000000",
        "--query.max-concurrency=10",
        f"--web.listen-address=127.0.0.1:{read_facts(layout)['prometheus_port']}",
    )
