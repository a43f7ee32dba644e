"""Wheel installed alone: the worker side runs without Django and other dependencies."""

import json
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = Path(sys.executable).parent / "uv"
LOWER_ROOMS = [
    "cachetier.client",
    "cachetier.wire",
    "cachetier.engine",
    "cachetier.vllm_connector",
    "console.provisioners.base",
    "console.processkit",
    "routing.engine",
    "endpoints.simulated_worker",
]
# What a room may lack in a bare environment, as pyproject's extras name it; every other import of
# every module must succeed.
EXTRAS = {
    "cachetier.vllm_connector": {"vllm", "torch"},
    "routing.engine": {
        *("orjson", "msgspec", "xxhash", "zmq", "tokenizers", "yaml", "jinja2"),
        *("uvloop", "zstandard", "opentelemetry"),
    },
    "endpoints.simulated_worker": {"msgspec", "zmq", "tokenizers", "orjson", "jinja2"},
}
_WALK = """
import importlib, json, pkgutil, sys
room = importlib.import_module(sys.argv[1])
names = [sys.argv[1]]
for found in pkgutil.walk_packages(getattr(room, "__path__", ()), sys.argv[1] + "."):
    if not found.name.endswith("__main__"):
        names.append(found.name)
lacking = {}
for name in names:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        lacking[name] = (error.name or "").partition(".")[0]
assert not {"django", "celery"} & set(sys.modules)
print(json.dumps({"names": names, "lacking": lacking}))
"""
# Names of any module below vllm and torch, each a class of any attributes.
_STUB = """
import importlib.abc, importlib.machinery, sys, types

class Meta(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Meta(name, (), {"__init__": lambda self, *a, **k: None})

class Module(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        if name == "__version__":
            return "0.32.0"
        return Meta(name, (), {"__init__": lambda self, *a, **k: None})

class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("vllm", "torch"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        return Module(spec.name)
    def exec_module(self, module):
        pass

sys.meta_path.insert(0, Finder())
from cachetier.vllm_connector import cpu_spec, stats, tier
assert set(tier.EmberlineL2Tier.build_metric_definitions({})) == set(stats.metric_definitions())
assert not {"django", "celery", "redis", "numpy"} & set(sys.modules)
print("ok")
"""


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(wheel: Path, folder: Path) -> Path:
    """An interpreter that holds the wheel and nothing else; made without a network."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    run(UV, "pip", "install", "-q", "--no-index", "--offline", "--python", python, wheel)
    return python


@pytest.fixture(scope="module")
def bare_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(wheel, tmp_path_factory.mktemp("bare") / "venv")


def test_wheel_needs_no_dependencies(bare_python: Path) -> None:
    code = "from importlib import metadata; print(len(list(metadata.distributions())))"
    assert run(bare_python, "-I", "-c", code).strip() == "1"


@pytest.mark.parametrize("room", LOWER_ROOMS)
def test_lower_layer_modules_import_without_dependencies(bare_python: Path, room: str) -> None:
    found = json.loads(run(bare_python, "-I", "-c", _WALK, room))
    assert set(found["lacking"].values()) <= EXTRAS.get(room, set()), found["lacking"]
    assert room not in found["lacking"]
    assert len(found["lacking"]) < len(found["names"])


def test_wheel_declares_its_types(bare_python: Path) -> None:
    found = "import cachetier, routing; print(cachetier.__path__[0])"
    site = Path(run(bare_python, "-I", "-c", found).strip()).parent
    for room in ("cachetier", "console", "dashboards", "endpoints", "routing"):
        assert (site / room / "py.typed").is_file()


def test_plug_in_imports_with_vllm_alone(bare_python: Path) -> None:
    assert run(bare_python, "-I", "-c", _STUB).strip() == "ok"


def test_plug_in_reports_missing_vllm(bare_python: Path) -> None:
    """Importing the tier where vLLM is absent must name vLLM, not fail somewhere inside."""
    done = subprocess.run(
        [bare_python, "-I", "-c", "import cachetier.vllm_connector.tier"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "vllm" in done.stderr.lower().splitlines()[-1]


def test_cache_node_runs_from_the_wheel_alone(bare_python: Path) -> None:
    done = run(bare_python, "-I", "-m", "cachetier.engine", "--help")
    assert "--memory" in done
