#!/usr/bin/env python3
"""Compile what runs for each request of router and cache node with mypyc, in a copy of the source.

    compile_engines.py FOLDER [--python PYTHON] [--cached]
    compile_engines.py FOLDER --check                          fails unless all are loaded compiled

Needs mypy, setuptools and a C compiler. A shared library appears beside each source and is imported
in its place. FOLDER must not be a checkout, where edits of the source would then have no effect.
PYTHON has the engines' packages. With --cached, the libraries of the last sources are kept in the
user's cache folder.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib
import os
import shutil
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version
from pathlib import Path
from typing import Any

# What runs for every request and event. Classes of these modules check the declared types of their
# attributes; an interpreted class cannot derive from them, so all subclasses are here as well.
MODULES = [
    "cachetier.engine.commands.arguments",
    "cachetier.engine.commands.retrieval",
    "cachetier.engine.commands.values",
    "cachetier.engine.counters",
    "cachetier.engine.disk.values",
    "cachetier.engine.memory.entries",
    "cachetier.engine.memory.gates",
    "cachetier.engine.memory.memory_store",
    "cachetier.engine.memory.pages",
    "cachetier.engine.net.session",
    "cachetier.engine.net.sockets",
    "cachetier.engine.store",
    "cachetier.wire.frames",
    "cachetier.wire.replies",
    "console.processkit.metrics",
    "routing.engine.access.key_usage",
    "routing.engine.access.keys",
    "routing.engine.access.paths",
    "routing.engine.answer",
    "routing.engine.client_connection",
    "routing.engine.exchange",
    "routing.engine.fleet.circuit",
    "routing.engine.fleet.connection_pool",
    "routing.engine.fleet.load",
    "routing.engine.fleet.pace",
    "routing.engine.fleet.probe_request",
    "routing.engine.fleet.worker_connection",
    "routing.engine.fleet.workers",
    "routing.engine.http.bodies",
    "routing.engine.http.head_cache",
    "routing.engine.http.heads",
    "routing.engine.http.http1",
    "routing.engine.misses.diagnosis",
    "routing.engine.misses.diagnostics",
    "routing.engine.misses.history",
    "routing.engine.misses.ledger",
    "routing.engine.misses.peer_prompts",
    "routing.engine.misses.sketch",
    "routing.engine.misses.sums",
    "routing.engine.observe.decisions",
    "routing.engine.observe.metrics",
    "routing.engine.observers",
    "routing.engine.prompt.canonical",
    "routing.engine.prompt.engine_request",
    "routing.engine.prompt.identity",
    "routing.engine.recorder",
    "routing.engine.request",
    "routing.engine.request_path",
    "routing.engine.router",
    "routing.engine.token_ledger",
    "routing.engine.tokens.usage",
]

# All modules of these packages, too: a strategy is a file.
PACKAGES = ("routing/engine/policies",)

# What the modules import, whose types the compiled code relies on.
SOURCES = ("cachetier", "console/processkit", "routing/engine")
KEPT_BUILDS = 4

# Hidden symbols are called directly and inlined: a tenth less CPU a request. Warnings about
# generated code would double the compile time.
_FLAGS = ["-fvisibility=hidden", "-Wno-all"]

# Modules outside the list are read for their types only.
_MYPY = """
[mypy]
follow_imports = silent
ignore_missing_imports = True
"""


def compile_modules(folder: Path, python: str, cache: Path) -> None:
    """Put the shared libraries beside their sources in `folder`, from the cache if they are there.

    Concurrent builds of the same cache wait for each other: the second finds what the first made.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        libraries = cache / _digest(folder)
        if not libraries.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as build:
                _build(folder, python, Path(build) / "libraries", build)
                (Path(build) / "libraries").rename(libraries)
        libraries.touch()
        by_age = sorted(cache.glob("*/"), key=lambda path: path.stat().st_mtime, reverse=True)
        for outdated in by_age[KEPT_BUILDS:]:
            shutil.rmtree(outdated)
        shutil.copytree(libraries, folder, dirs_exist_ok=True)


def _digest(folder: Path) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes())
    digest.update(f"{sys.version} {sysconfig.get_platform()} {version('mypy')}".encode())
    for room in SOURCES:
        for path in sorted((folder / room).rglob("*.py")):
            digest.update(f"\0{path.relative_to(folder)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def _build(folder: Path, python: str, libraries: Path, build: str) -> None:
    from mypyc.build import mypycify
    from setuptools import setup
    from setuptools.command.build_ext import build_ext

    class BuildAtOnce(build_ext):
        """Compiles as many files at once as there are cores, at most eight."""

        def build_extensions(self) -> None:
            compile_files = self.compiler.compile

            def compile_at_once(files: list[str], **options: Any) -> list[str]:
                with ThreadPoolExecutor(min(os.cpu_count() or 1, 8)) as pool:
                    parts = pool.map(lambda file: compile_files([file], **options), files)
                    return [name for names in parts for name in names]

            self.compiler.compile = compile_at_once
            super().build_extensions()

    sources = [str(folder / f"{name.replace('.', '/')}.py") for name in list_modules(folder)]
    # Away from pyproject.toml, whose settings are for the whole product.
    with contextlib.chdir(build):
        Path("mypy.ini").write_text(_MYPY)
        extensions = mypycify(
            ["--config-file", "mypy.ini", "--python-executable", python, *sources],
            opt_level="2",
            debug_level="0",
            target_dir=build,
            multi_file=True,
            group_name="emberline_engines",
        )
        for extension in extensions:
            extension.extra_compile_args = [*extension.extra_compile_args, *_FLAGS]
        command = ["--quiet", "build_ext", "--build-lib", str(libraries), "--build-temp", build]
        setup(
            name="emberline-engines",
            packages=[],
            ext_modules=extensions,
            script_args=command,
            cmdclass={"build_ext": BuildAtOnce},
        )


def cache_folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "emberline/compiled"


def list_modules(folder: Path) -> list[str]:
    names = list(MODULES)
    for package in PACKAGES:
        files = (folder / package).glob("[!_]*.py")
        names += [f"{package.replace('/', '.')}.{file.stem}" for file in files]
    return sorted(names)


def find_interpreted(folder: Path) -> list[str]:
    """Return the modules that are not loaded from a shared library in the folder."""
    sys.path.insert(0, str(folder))
    files = {name: importlib.import_module(name).__file__ or "" for name in list_modules(folder)}
    return [
        name
        for name, file in files.items()
        if not file.endswith(tuple(EXTENSION_SUFFIXES)) or folder not in Path(file).parents
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="copy of the source; .git must be absent")
    parser.add_argument("--python", default=sys.executable, help="with the engines' packages")
    parser.add_argument("--cached", action="store_true", help="keep the libraries, by digest")
    parser.add_argument("--check", action="store_true", help="compile nothing")
    flags = parser.parse_args()
    folder = flags.folder.resolve()
    if flags.check:
        if interpreted := find_interpreted(folder):
            sys.exit(f"not compiled in {folder}: {', '.join(interpreted)}")
        return
    if (folder / ".git").exists():
        sys.exit(
            f"{folder} is a checkout: edits there would have no effect. Compile a copy, as "
            "`make compiled` does."
        )
    with tempfile.TemporaryDirectory() as unkept:
        compile_modules(folder, flags.python, cache_folder() if flags.cached else Path(unkept))


if __name__ == "__main__":
    main()
