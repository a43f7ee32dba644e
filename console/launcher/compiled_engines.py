"""Router and cache node compiled to machine code, in a copy of their source under var.

Those of this machine import it in place of the checkout's, which an editor may change. The
libraries are cached by the digest of their sources, for all checkouts of this user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from console.launcher import tools
from console.launcher.layout import ROOT, Layout
from console.launcher.progress import die_with_launcher, print_line, run, step

_SCRIPT = ROOT / "deploy/containers/compile_engines.py"
_PACKAGES = ("console/processkit", "routing/engine", "cachetier")


def start(layout: Layout) -> subprocess.Popen[bytes] | None:
    """Compile beside the following steps, in a process of its own. Return None, with a notice, if
    the engines stay interpreted.
    """
    reason = tools.missing_compiler()
    if os.environ.get("EMBERLINE_COMPILED") == "0":
        reason = "EMBERLINE_COMPILED=0."
    if reason:
        print_line(f"  ! Router and cache node run interpreted, at half the speed. {reason}")
        return None
    with _log_path(layout).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "console.launcher", "compile-engines"],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=die_with_launcher,
        )


def wait(layout: Layout, compilation: subprocess.Popen[bytes] | None) -> Path | None:
    """Return the folder to import the compiled engines from, None if they stay interpreted."""
    if compilation is None:
        return None
    if compilation.poll() is None:
        with step("Compiling router and cache node (a minute, once for each version)"):
            compilation.wait()
    if compilation.returncode:
        print_line(
            f"  ! Router and cache node run interpreted, at half the speed: {_log_path(layout)}"
        )
        return None
    return _folder(layout)


def compile_copy(layout: Layout) -> None:
    """Replace the compiled copy of the engines. Raise StepFailed."""
    folder = _folder(layout)
    shutil.rmtree(folder, ignore_errors=True)
    for package in _PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(ROOT / package, folder / package, ignore=ignored)
        above = Path(package).parts[0] + "/__init__.py"
        shutil.copyfile(ROOT / above, folder / above)
    command: list[str | Path] = [sys.executable, _SCRIPT, folder]
    run([*command, "--cached"], "The engines were not compiled")
    run([*command, "--check"], "The compiled engines cannot be imported")


def _folder(layout: Layout) -> Path:
    return layout.var / "engines"


def _log_path(layout: Layout) -> Path:
    return layout.logs / "compile_engines.log"
