"""Files of one replica: those of its spec and the input of its launcher.

Every file has mode 0600. Secrets are read at apply time and written only to the launcher's file.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import console
from console.processkit import leftovers
from console.processkit.files import make_private_dir, write_private
from console.processkit.launch import Launch, LaunchRun
from console.provisioners.base import FileSpec, WorkloadSpec
from console.provisioners.local.ports import HOST
from console.provisioners.local.supervisord import Program, include_dir, log_path, render_program
from console.provisioners.specs import ReplicaFacts

# Import path of `console` for the launcher, which starts without site-packages.
_ROOT = Path(next(iter(console.__path__))).resolve().parent
# supervisord kills the group only after the launcher's own grace period.
_KILL_MARGIN_S = 15
# Start after the console's programs and stop before them.
_PRIORITY = 500


def prepare(
    spec: WorkloadSpec, index: int, folder: Path, ports: Mapping[str, int], secrets: dict[str, str]
) -> None:
    replacements = replica_facts(spec, index, folder, ports)
    make_private_dir(folder.parent)
    make_private_dir(folder)
    write_files(folder, (*spec.files, *spec.live_files), replacements)
    env = {name: replacements.fill(value) for name, value in spec.env.items()}
    argv = tuple(replacements.fill(word) for word in spec.argv)
    Launch(argv, env | secrets, float(spec.stop_grace_s)).write(folder)


def replica_facts(
    spec: WorkloadSpec, index: int, folder: Path, ports: Mapping[str, int]
) -> ReplicaFacts:
    """Return placeholder values. A channel is bound by its bare name in the replica's folder,
    because Unix socket addresses are limited to 107 bytes.
    """
    channels = {name: f"ipc://{socket_name(name)}" for name in spec.channels}
    return ReplicaFacts(HOST, str(folder), index, ports, channels)


def socket_name(channel: str) -> str:
    return f"{channel}.sock"


def write_files(folder: Path, files: Iterable[FileSpec], facts: ReplicaFacts) -> None:
    """Write files whose content differs."""
    for file in files:
        path, content = folder / file.path, facts.fill(file.content)
        if path.is_file() and path.read_text(encoding="utf-8") == content:
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, content)


def forget_deaths(folder: Path) -> None:
    """Reset the exit count; the old process group is kept to find leftovers."""
    run = LaunchRun.read(folder)
    if run.deaths:
        run._replace(deaths=0, last_exit="").write(folder)


def write_program(var: Path, name: str, folder: Path, stop_grace_s: int) -> None:
    # -S and -E: only the standard library and this package; faster and independent of the
    # environment.
    argv = (sys.executable, "-S", "-E", "-m", "console.processkit.launch", str(folder))
    program = Program(
        name,
        argv,
        env={leftovers.MARK: str(folder)},
        directory=_ROOT,
        priority=_PRIORITY,
        stop_wait_s=stop_grace_s + _KILL_MARGIN_S,
    )
    write_private(program_path(var, name), render_program(var, program, _ROOT))


def program_path(var: Path, name: str) -> Path:
    return include_dir(var) / f"{name}.conf"


def remove_replica(var: Path, name: str, folder: Path) -> list[int]:
    """Kill the remaining processes, then remove the log and folder. Return the pids that could not
    be killed, in which case nothing is removed.
    """
    left = leftovers.end_leftovers(folder, LaunchRun.read(folder).group)
    if left:
        return left
    log = log_path(var, name)
    for path in (log, *log.parent.glob(f"{log.name}.[0-9]*")):
        path.unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)
    return []


def tail(path: Path, lines: int) -> str:
    """Return the last lines of a log, at most 256 KiB."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - 256 * 1024))
            text = stream.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "".join(text.splitlines(keepends=True)[-lines:]) if lines > 0 else ""
