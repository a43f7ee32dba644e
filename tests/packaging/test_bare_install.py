"""The wheel, installed alone, carries the worker side: no Django and no other dependency."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LOWER_ROOMS = [
    "cachetier.client",
    "cachetier.wire",
    "cachetier.engine",
    "cachetier.vllm_connector.settings",
    "console.provisioners.base",
    "console.processkit",
    "routing.engine",
    "endpoints.simulated_worker",
]


def run(*command: object) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that holds the wheel and nothing else."""
    folder = tmp_path_factory.mktemp("bare")
    uv = Path(sys.executable).parent / "uv"
    run(uv, "build", "-q", "--wheel", "--out-dir", folder / "dist", ROOT)
    wheel = next((folder / "dist").glob("*.whl"))
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    run(uv, "pip", "install", "-q", "--no-index", "--python", python, wheel)
    return python


def test_the_wheel_needs_nothing(bare_python: Path) -> None:
    code = "from importlib import metadata; print(len(list(metadata.distributions())))"
    assert run(bare_python, "-I", "-c", code).strip() == "1"


@pytest.mark.parametrize("room", LOWER_ROOMS)
def test_lower_rooms_import_bare(bare_python: Path, room: str) -> None:
    code = f"import {room}, sys; assert 'django' not in sys.modules; print('ok')"
    assert run(bare_python, "-I", "-c", code).strip() == "ok"


def test_the_plug_in_says_what_it_lacks_without_vllm(bare_python: Path) -> None:
    """Importing the tier where vLLM is absent must name vLLM, not fail somewhere inside."""
    done = subprocess.run(
        [bare_python, "-I", "-c", "import cachetier.vllm_connector.tier"],
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert "vllm" in done.stderr.lower().splitlines()[-1]
