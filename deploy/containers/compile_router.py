#!/usr/bin/env python3
"""Compile the request path of the router with mypyc, in a copy of the source.

    compile_router.py FOLDER [--python PYTHON] [--optimize 2]
    compile_router.py FOLDER --check                          fails unless all are loaded compiled

Needs mypy, setuptools and a C compiler. A shared library appears beside each source and is imported
in its place. FOLDER must not be a checkout, where edits of the source would then have no effect.
PYTHON has the router's packages.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import tempfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

# What runs for every request and event. Classes of these modules check the declared types of their
# attributes; an interpreted class cannot derive from them, so all subclasses are here as well.
MODULES = [
    "console.processkit.metrics",
    "routing.engine.access.key_usage",
    "routing.engine.access.keys",
    "routing.engine.access.paths",
    "routing.engine.client_connection",
    "routing.engine.exchange",
    "routing.engine.fleet.circuit",
    "routing.engine.fleet.connection_pool",
    "routing.engine.fleet.load",
    "routing.engine.fleet.probe_request",
    "routing.engine.fleet.worker_connection",
    "routing.engine.fleet.workers",
    "routing.engine.http.bodies",
    "routing.engine.http.head_cache",
    "routing.engine.http.heads",
    "routing.engine.http.http1",
    "routing.engine.misses.diagnosis",
    "routing.engine.misses.history",
    "routing.engine.misses.ledger",
    "routing.engine.misses.peer_prompts",
    "routing.engine.misses.sketch",
    "routing.engine.misses.sums",
    "routing.engine.observe.decisions",
    "routing.engine.observe.metrics",
    "routing.engine.policies.base",
    "routing.engine.policies.canary",
    "routing.engine.policies.cost",
    "routing.engine.policies.kvaware",
    "routing.engine.policies.load_order",
    "routing.engine.policies.prefix_index",
    "routing.engine.policies.prefixaware",
    "routing.engine.policies.ranking",
    "routing.engine.policies.session",
    "routing.engine.prompt.canonical",
    "routing.engine.prompt.engine_request",
    "routing.engine.prompt.identity",
    "routing.engine.recorder",
    "routing.engine.request_attempts",
    "routing.engine.router",
    "routing.engine.router_state",
    "routing.engine.token_ledger",
    "routing.engine.tokens.usage",
]

# Modules outside the list are read for their types only.
_MYPY = """
[mypy]
follow_imports = silent
ignore_missing_imports = True
"""


def compile_modules(folder: Path, python: str, optimize: str) -> None:
    from mypyc.build import mypycify
    from setuptools import setup

    sources = [str(folder / f"{name.replace('.', '/')}.py") for name in MODULES]
    with tempfile.TemporaryDirectory() as build:
        os.chdir(build)  # away from pyproject.toml, whose settings are for the whole product
        Path("mypy.ini").write_text(_MYPY)
        extensions = mypycify(
            ["--config-file", "mypy.ini", "--python-executable", python, *sources],
            opt_level=optimize,
            debug_level="0",
            target_dir=build,
            group_name="emberline_router",
        )
        command = ["--quiet", "build_ext", "--build-lib", str(folder), "--build-temp", build]
        setup(name="emberline-router", packages=[], ext_modules=extensions, script_args=command)


def find_interpreted(folder: Path) -> list[str]:
    """Return the modules that are not loaded from a shared library in the folder."""
    sys.path.insert(0, str(folder))
    files = {name: importlib.import_module(name).__file__ or "" for name in MODULES}
    return [
        name
        for name, file in files.items()
        if not file.endswith(tuple(EXTENSION_SUFFIXES)) or folder not in Path(file).parents
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="copy of the source; .git must be absent")
    parser.add_argument("--python", default=sys.executable, help="with the router's packages")
    parser.add_argument("--optimize", default="2", help="level of the C compiler")
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
            "`make test-compiled` does."
        )
    compile_modules(folder, flags.python, flags.optimize)


if __name__ == "__main__":
    main()
