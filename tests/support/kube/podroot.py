"""First program of a pod: mounts its volumes over a view of this machine, then execs the command.

Started as `unshare --mount python podroot.py SPEC.json`, without imports of ours: it runs before
there is an import path. The mounts end with the process.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path

BIND, RECURSIVE, READ_ONLY, REMOUNT = 4096, 16384, 1, 32
OWN = ("tmp", "run")  # not shared with the host
libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0) -> None:
    if libc.mount(source.encode(), target.encode(), kind.encode(), flags, b""):
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def build(root: Path, **own: str) -> None:
    """Build a root like this machine's, with folders of ours (`/.NAME`) in some places."""
    mount("tmpfs", str(root), "tmpfs")
    for entry in Path("/").iterdir():
        new = root / entry.name
        if entry.is_symlink():
            new.symlink_to(entry.readlink())
        elif entry.is_dir():
            new.mkdir()
            if entry.name not in OWN:
                mount(str(entry), str(new), flags=BIND | RECURSIVE)
    for name, folder in own.items():
        (root / f".{name}").mkdir()
        mount(folder, str(root / f".{name}"), flags=BIND)


def place(source: Path, target: Path, read_only: bool) -> None:
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    mount(str(source), str(target), flags=BIND)
    if read_only:
        mount(str(source), str(target), flags=BIND | REMOUNT | READ_ONLY)


def main() -> None:
    spec = json.loads(Path(sys.argv[1]).read_text())
    root = Path(spec["root"])
    build(root, pod=spec["folder"], source=spec["source"], venv=spec["venv"])
    os.chroot(root)
    os.chdir("/")
    for source, target, read_only in sorted(spec["mounts"], key=lambda item: item[1]):
        place(Path("/.pod") / source, Path(target), read_only)
    mount("/.pod/" + spec["resolv"], "/etc/resolv.conf", flags=BIND)
    os.chdir(spec["cwd"])
    os.execvpe(spec["argv"][0], spec["argv"], spec["env"])


if __name__ == "__main__":
    main()
