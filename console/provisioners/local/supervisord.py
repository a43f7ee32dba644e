"""Render supervisord configuration: the base file and one section per program.

Rendered values are parsed back unchanged or rejected: supervisor expands `%`, truncates a value
at ` ;` or ` #`, and cannot escape a quote in an environment.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

LOG_BYTES = "10MB"
LOG_BACKUPS = 3
# A process that exits sooner counts as a failed start: supervisor waits one second longer before
# each retry, indefinitely. One that ran longer is restarted at once.
START_SECS = 10
START_RETRIES = 1_000_000


class UnsafeValueError(ValueError): ...


@dataclass(frozen=True, slots=True)
class Program:
    """A process supervised by supervisord. Lower `priority` starts earlier and stops later.

    `stop_wait_s` is the time between TERM and the kill of the process group.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    priority: int = 999
    stop_wait_s: int = 30
    start_secs: int = START_SECS


def command(config: Path) -> tuple[str, ...]:
    """Return the argv that runs supervisord with this file in the foreground."""
    module = "console.provisioners.local.daemon"
    return (sys.executable, "-m", module, "--nodaemon", "-c", str(config))


def socket_path(var: Path) -> Path:
    return var / "run" / "supervisor.sock"


def include_dir(var: Path) -> Path:
    return var / "supervisor" / "conf.d"


def log_path(var: Path, program: str) -> Path:
    return var / "log" / f"{program}.log"


def render_config(var: Path, programs: Iterable[Program], directory: Path) -> str:
    """Return the base file. `directory` is the working directory of programs without one."""
    var = _folder(var)
    lines = [
        "[supervisord]",
        f"logfile={_value(log_path(var, 'supervisord'))}",
        f"logfile_maxbytes={LOG_BYTES}",
        f"logfile_backups={LOG_BACKUPS}",
        f"pidfile={_value(var / 'run' / 'supervisord.pid')}",
        f"childlogdir={_value(var / 'log')}",
        f"directory={_value(directory)}",
        "identifier=emberline",
        "umask=077",
        "silent=true",  # otherwise every line also goes to the unrotated stdout
        "",
        "[unix_http_server]",
        f"file={_value(socket_path(var))}",
        "chmod=0700",
        "",
        "[rpcinterface:supervisor]",
        "supervisor.rpcinterface_factory=supervisor.rpcinterface:make_main_rpcinterface",
        "",
        "[supervisorctl]",
        f"serverurl=unix://{_value(socket_path(var))}",
        "",
        "[include]",
        "files=conf.d/*.conf",  # relative: a path with a space would count as two
        "",
    ]
    sections = [render_program(var, program, directory) for program in programs]
    return "\n".join(lines) + "\n" + "\n".join(sections)


def render_program(var: Path, program: Program, directory: Path) -> str:
    """Return one `[program:x]` section, which forms its own group."""
    if not program.name.replace("-", "").isalnum():
        raise UnsafeValueError(f"{program.name!r} is not a valid program name")
    lines = [
        f"[program:{program.name}]",
        f"command={_value(shlex.join(program.argv))}",
        f"directory={_value(program.directory or directory)}",
        f"priority={program.priority}",
        "autostart=true",
        "autorestart=true",
        f"startsecs={program.start_secs}",
        f"startretries={START_RETRIES}",
        "stopsignal=TERM",
        f"stopwaitsecs={program.stop_wait_s}",
        "stopasgroup=false",
        "killasgroup=true",
        "redirect_stderr=true",
        f"stdout_logfile={_value(log_path(_folder(var), program.name))}",
        f"stdout_logfile_maxbytes={LOG_BYTES}",
        f"stdout_logfile_backups={LOG_BACKUPS}",
    ]
    if program.env:
        lines.append(f"environment={_environment(program.env)}")
    return "\n".join(lines) + "\n"


def _folder(var: Path) -> Path:
    folder = var.resolve()
    if odd := sorted(set("%*?[") & set(str(folder))):
        # supervisor expands a log path twice, and globs the folder of its own file.
        raise UnsafeValueError(f"supervisor cannot work in {folder}: its path contains {odd[0]}")
    return folder


def _value(raw: object) -> str:
    text = str(raw)
    if any(ord(character) < 32 for character in text):
        raise UnsafeValueError(f"{text!r} contains a control character")
    if " ;" in text or " #" in text:
        raise UnsafeValueError(f"{text!r} would be truncated: supervisor reads a comment there")
    if "%(here)s" in text:
        raise UnsafeValueError(f"{text!r} would be changed: supervisor replaces %(here)s always")
    return text.replace("%", "%%")


def _environment(env: Mapping[str, str]) -> str:
    for name, value in env.items():
        if '"' in value or "'" in value:
            raise UnsafeValueError(f"the value of {name} contains a quote")
    return ",".join(f'{name}="{_value(value)}"' for name, value in env.items())
