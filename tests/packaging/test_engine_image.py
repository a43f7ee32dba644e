"""Image of the engines: what it copies, and which modules of the router it compiles.

`make test-compiled` compiles them and runs the router's tests on the result.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import runpy
import subprocess
import sys
from pathlib import Path

import routing.engine

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "deploy/containers/engine.Containerfile"
SCRIPT = ROOT / "deploy/containers/compile_router.py"
MODULES: list[str] = runpy.run_path(str(SCRIPT))["MODULES"]


def compile_router(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_copied_files_exist_and_are_in_the_build_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = tuple(line[1:] for line in ignored if line.startswith("!"))
    copied = re.findall(r"^COPY ([^-]\S*) ", CONTAINERFILE.read_text(), re.MULTILINE)
    assert "deploy/containers/compile_router.py" in copied
    for name in copied:
        assert (ROOT / name).exists()
        assert any(name == one or name.startswith(one + "/") for one in allowed), name


def test_compiled_modules_are_in_the_image() -> None:
    assert sorted(set(MODULES)) == MODULES
    for name in MODULES:
        assert name.startswith(("routing.engine.", "console.processkit."))
        assert (ROOT / f"{name.replace('.', '/')}.py").exists()


def test_subclasses_of_compiled_classes_are_compiled() -> None:
    """An interpreted subclass imports, and fails when it is instantiated."""
    for found in pkgutil.walk_packages(routing.engine.__path__, "routing.engine."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    checked = 0
    for name in MODULES:
        for item in list(vars(sys.modules[name]).values()):
            if isinstance(item, type) and item.__module__ == name:
                for derived in item.__subclasses__():
                    if derived.__module__.startswith(("routing.", "console.")):
                        assert derived.__module__ in MODULES, derived
                        checked += 1
    assert checked > 5


def test_checkout_is_not_compiled(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")  # as in a worktree
    done = compile_router(tmp_path)
    assert done.returncode == 1
    assert "is a checkout" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == [".git"]


def test_module_that_is_not_compiled_is_named() -> None:
    done = compile_router(ROOT, "--check")
    assert done.returncode == 1
    for name in MODULES:
        assert name in done.stderr
