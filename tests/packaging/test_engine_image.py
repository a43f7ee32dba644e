"""Image of the engines: what it copies, and which modules of the router it compiles.

`make test-engines` compiles them and runs the router's tests on the result.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path

import cachetier.engine
import routing.engine

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "deploy/containers/engine.Containerfile"
UV = Path(sys.executable).parent / "uv"
SCRIPT = ROOT / "deploy/containers/compile_engines.py"
MODULES: list[str] = runpy.run_path(str(SCRIPT))["list_modules"](ROOT)


def compile_engines(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True)


def test_copied_files_exist_and_are_in_the_build_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    allowed = tuple(line[1:] for line in ignored if line.startswith("!"))
    copied = re.findall(r"^COPY ([^-]\S*) ", CONTAINERFILE.read_text(), re.MULTILINE)
    assert "deploy/containers/compile_engines.py" in copied
    for name in (*copied, "deploy/wheel"):  # the worker's image builds the wheel
        assert (ROOT / name).exists()
        assert any(name == one or name.startswith(one + "/") for one in allowed), name


def test_compiled_modules_are_in_the_image() -> None:
    assert sorted(set(MODULES)) == MODULES
    for name in MODULES:
        assert name.startswith(("routing.engine.", "cachetier.", "console.processkit."))
        assert (ROOT / f"{name.replace('.', '/')}.py").exists()


def test_subclasses_of_compiled_classes_are_compiled() -> None:
    """An interpreted subclass imports, and fails when it is instantiated."""
    for engine in (routing.engine, cachetier.engine):
        for found in pkgutil.walk_packages(engine.__path__, f"{engine.__name__}."):
            if not found.name.endswith("__main__"):
                importlib.import_module(found.name)
    checked = 0
    for name in MODULES:
        for item in list(vars(sys.modules[name]).values()):
            if isinstance(item, type) and item.__module__ == name:
                for derived in item.__subclasses__():
                    if derived.__module__.startswith(("routing.", "cachetier.", "console.")):
                        assert derived.__module__ in MODULES, derived
                        checked += 1
    assert checked > 5


def test_same_sources_are_compiled_once(tmp_path: Path) -> None:
    compile_modules = runpy.run_path(str(SCRIPT))["compile_modules"]
    folder, cache = tmp_path / "copy", tmp_path / "cache"
    builds: list[Path] = []

    def build(folder: Path, _python: str, libraries: Path, _build: str) -> None:
        builds.append(folder)
        (libraries / "routing/engine").mkdir(parents=True)
        (libraries / "routing/engine/exchange.so").write_text(str(len(builds)))

    compile_modules.__globals__["_build"] = build
    for package in ("cachetier", "console/processkit", "routing/engine"):
        (folder / package).mkdir(parents=True)
        (folder / package / "one.py").write_text(package)
    for _ in range(2):
        compile_modules(folder, sys.executable, cache)
    assert len(builds) == 1
    assert (folder / "routing/engine/exchange.so").read_text() == "1"
    for number in range(6):
        (folder / "routing/engine/one.py").write_text(str(number))
        compile_modules(folder, sys.executable, cache)
        assert (folder / "routing/engine/exchange.so").read_text() == str(number + 2)
    assert len(list(cache.glob("*/"))) == 4, "older libraries are removed"


def test_wheel_has_the_router_compiled(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "none-any" not in wheel.name
    for name in MODULES:
        path = name.replace(".", "/")
        assert f"{path}.py" in names
        assert any(file.startswith(f"{path}.cpython-") for file in names), name


def test_wheel_of_an_interpreted_router_is_for_every_platform(tmp_path: Path) -> None:
    env = os.environ | {"EMBERLINE_COMPILED": "0"}
    command = [str(UV), "build", "-q", "--wheel", "--out-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, env=env, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any(".cpython-" in file for file in zipfile.ZipFile(wheel).namelist())


def test_checkout_is_not_compiled(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")  # as in a worktree
    done = compile_engines(tmp_path)
    assert done.returncode == 1
    assert "is a checkout" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == [".git"]


def test_module_that_is_not_compiled_is_named() -> None:
    done = compile_engines(ROOT, "--check")
    assert done.returncode == 1
    for name in MODULES:
        assert name in done.stderr
