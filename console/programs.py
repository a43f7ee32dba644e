"""The console's programs, each as one command, for this machine and for pods.

`python -m console.programs web|worker|beat|migrate` replaces itself by that program, so that
signals reach it. Flags are the same everywhere and contain no secret.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from console.core import environment
from console.processkit import descriptors

STREAMS_END_S = 5
"""Time for requests in flight when the web process terminates (s)."""
THREADS = 8
HEARTBEAT_S = 20
"""Interval of the worker's reports to `console.celery_watch`, each a message through the broker."""
WORKER_SCHEDULES = "EMBERLINE_WORKER_SCHEDULES"
"""Environment: the worker runs the schedule, too. For one worker without beat."""
NAMES = ("web", "worker", "beat", "migrate")
_CELERY = ("-m", "celery", "--quiet", "-A", "console.celery_app")


def web_arguments(host: str, port: int, *, behind_proxy: bool) -> tuple[str, ...]:
    """Return the arguments after the interpreter. Without a TLS proxy, forwarded addresses are
    ignored: the login limit counts by address.
    """
    server = ("-m", "console.web.server.uvicorn_server", "console.asgi:application")
    quiet = ("--no-access-log", "--no-server-header")
    where = ("--host", host, "--port", str(port))
    proxy = () if behind_proxy else ("--no-proxy-headers",)
    limits = ("--http", "console.web.server.http_protocol:LimitedProtocol", "--ws", "none")
    lifetime = ("--lifespan", "off", "--timeout-graceful-shutdown", str(STREAMS_END_S))
    return (*server, *quiet, *where, *proxy, *limits, *lifetime)


def worker_arguments(level: str = "INFO", threads: int = THREADS) -> tuple[str, ...]:
    """Use threads: tasks wait on sockets, and one process suits 2 cores."""
    pool = ("--pool", "threads", "--concurrency", str(threads))
    quiet = ("--without-gossip", "--without-mingle", "--heartbeat-interval", str(HEARTBEAT_S))
    return (*_CELERY, "worker", "--loglevel", level, *pool, *quiet)


def beat_arguments() -> tuple[str, ...]:
    """Run beat; its INFO level logs every sweep, two lines per two seconds."""
    return (*_CELERY, "beat", "--loglevel", "WARNING", "--pidfile", "")


def migrate() -> tuple[str, ...]:
    return ("-m", "django", "emberline_migrate")


def command(name: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the complete argv for this environment; raise SettingError."""
    level = environment.log_level(env)
    made = {
        "web": lambda: web_arguments(
            environment.text(env, "EMBERLINE_HOST") or "127.0.0.1",
            environment.port(env, "EMBERLINE_PORT", 8000),
            behind_proxy=environment.flag(env, "EMBERLINE_HTTPS"),
        ),
        "worker": lambda: worker_arguments(level, _threads(env)),
        "beat": beat_arguments,
        "migrate": migrate,
    }
    return (sys.executable, *made[name]())


def _threads(env: Mapping[str, str]) -> int:
    value = environment.text(env, "EMBERLINE_WORKER_THREADS") or str(THREADS)
    if not value.isdecimal() or not 0 < int(value) <= 256:
        raise environment.SettingError("EMBERLINE_WORKER_THREADS", value, "write 1 to 256")
    return int(value)


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in NAMES:
        sys.exit(f"usage: python -m console.programs {'|'.join(NAMES)}")
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    os.environ["EMBERLINE_PROGRAM"] = sys.argv[1]
    try:
        argv = command(sys.argv[1], os.environ)
    except environment.SettingError as error:
        sys.exit(str(error))
    descriptors.raise_limit()  # inherited by the program
    os.execv(argv[0], argv)  # noqa: S606 (no shell is the point: signals reach the program)


if __name__ == "__main__":
    main()
