"""Steps of the console's and the engines' Containerfile, run in plain folders.

`COPY` and `RUN` of the first stage, with every absolute path below a temporary folder: the image's
environment holds exactly its lock. Building on the base images themselves needs a registry.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"

_OURS = re.compile(r"EMBERLINE_|DJANGO_|PYTHON|REDIS_URL|DATABASE_URL|VIRTUAL_ENV")
_IMPORT_ALL = """
import importlib, json, os, pkgutil, sys
if "DJANGO_SETTINGS_MODULE" in os.environ:
    import django
    django.setup()
missing = {}
for room in sys.argv[1:]:
    for module in pkgutil.walk_packages(importlib.import_module(room).__path__, room + "."):
        if not module.name.endswith("__main__"):
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError as error:
                missing[module.name] = error.name.partition(".")[0]
print(json.dumps(missing))
"""


@dataclass(frozen=True)
class Image:
    """An image's first stage, built in a folder."""

    root: Path

    def path(self, text: str) -> str:
        return re.sub(r"(?<![\w/.])/(opt|tmp|src|wheels)\b", rf"{self.root}/\1", text)

    def run(self, script: str, **env: str) -> str:
        script = self.path(script).replace(
            f"{self.root}/opt/venv/bin/pip install --only-binary",
            f"{UV} pip install -q --python {self.root}/opt/venv/bin/python --only-binary",
        )
        done = subprocess.run(
            ["/bin/sh", "-ec", script],
            cwd=self.root / "opt/emberline",
            env={name: value for name, value in os.environ.items() if not _OURS.match(name)} | env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def missing(self, *rooms: str, **env: str) -> dict[str, str]:
        """Module -> the distribution's module that it lacks, of all modules of these packages."""
        (self.root / "opt/import_all.py").write_text(_IMPORT_ALL)
        env |= {"PYTHONPATH": f"{self.root}/opt/emberline", "PYTHONDONTWRITEBYTECODE": "1"}
        missing: dict[str, str] = json.loads(
            self.run(f"/opt/venv/bin/python /opt/import_all.py {' '.join(rooms)}", **env)
        )
        return missing


def built(name: str, root: Path) -> Image:
    image = Image(root)
    for folder in ("opt/emberline", "tmp"):
        (root / folder).mkdir(parents=True)
    text = (ROOT / f"deploy/containers/{name}.Containerfile").read_text()
    stage = text.split("\nFROM ")[1].replace("\\\n", " ")
    for line in stage.splitlines():
        verb, _, rest = line.partition(" ")
        if verb == "COPY":
            *sources, target = rest.split()
            for source in sources:
                copy(ROOT / source, Path(image.path(target)), into=target.endswith("/"))
        elif verb == "RUN":
            # Compiling a thousand files of libraries takes longer than all else.
            image.run(re.sub(r"&& \S+python -m compileall \S+ \S+ \S+", "", rest))
    return image


def copy(source: Path, target: Path, *, into: bool) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target = target / source.name if into else target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return built("console", tmp_path_factory.mktemp("console"))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return built("engine", tmp_path_factory.mktemp("engine"))


def test_console_has_what_it_imports(console: Image) -> None:
    """What is left needs the engines' or vLLM's own environment, and runs there alone."""
    var = console.root / "var"
    missing = console.missing(
        "console",
        "endpoints",
        "routing",
        "cachetier",
        "dashboards",
        DJANGO_SETTINGS_MODULE="console.settings",
        EMBERLINE_VAR=str(var),
        EMBERLINE_STATIC=f"{console.root}/opt/emberline/static",
        REDIS_URL="memory://",
    )
    elsewhere = ("routing.engine.", "cachetier.vllm_connector.", "endpoints.simulated_worker.")
    assert {name: lack for name, lack in missing.items() if not name.startswith(elsewhere)} == {}
    # A part of the router that the console reads configuration with must stay importable.
    assert not any(name.startswith("routing.engine.config") for name in missing)


def test_console_has_its_static_files(console: Image) -> None:
    static = console.root / "opt/emberline/static"
    names = json.loads((static / "staticfiles.json").read_text())["paths"]
    assert {name.partition("/")[0] for name in names} >= {"console", "endpoints", "vendor"}
    assert all((static / name).is_file() for name in names.values())


def test_engine_has_what_it_imports(engine: Image) -> None:
    missing = engine.missing("routing", "cachetier", "endpoints", "console")
    assert set(missing.values()) <= {"vllm", "torch"}, missing
