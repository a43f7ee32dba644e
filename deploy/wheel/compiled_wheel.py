"""Build backend: setuptools, and in wheels the compiled engines where a C compiler is found.

EMBERLINE_COMPILED=0 leaves the engines to the interpreter, as does an editable installation.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from compile_engines import cache_folder, compile_modules
from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403 (the other hooks of a backend)
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py


def compiles() -> bool:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    headers = Path(sysconfig.get_path("include"), "Python.h").is_file()
    if os.environ.get("EMBERLINE_COMPILED") != "0" and headers and shutil.which(compiler):
        return True
    print("The engines are not compiled: no C compiler, no Python.h or EMBERLINE_COMPILED=0.")  # noqa: T201
    return False


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return what compiles the engines, and the packages whose types it relies on."""
    needed = build_meta.get_requires_for_build_wheel(config_settings)
    if not compiles():
        return needed
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [*needed, *extras["compile"], *extras["router"]]


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build in a folder of its own: concurrent builds of a checkout do not meet in it, and nothing
    that an earlier one left is packed.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "build.cfg")
        config.write_text(
            f"[build]\nbuild_base = {folder}/build\n[egg_info]\negg_base = {folder}\n"
        )
        os.environ["DIST_EXTRA_CONFIG"] = str(config)
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


class BdistWheel(bdist_wheel):
    """A wheel for this platform if it is compiled, else for all."""

    def finalize_options(self) -> None:
        if compiles():
            self.distribution.has_ext_modules = lambda: True
        super().finalize_options()


class BuildPy(build_py):
    """Copies the sources, then puts the compiled modules beside them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode and self.distribution.has_ext_modules():
            compile_modules(Path(self.build_lib).resolve(), sys.executable, cache_folder())
