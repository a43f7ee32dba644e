"""The vLLM and the model of the tests, both made by `make vllm`.

Other ones: EMBERLINE_VLLM_PYTHON (default .venv-vllm/bin/python) and EMBERLINE_MODEL (default
var/models/smollm2-135m-instruct).
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.cachenode import ROOT


def vllm_python() -> Path:
    """Fail, do not skip, without vLLM: a proof that was not run is not a proof."""
    if os.environ.get("EMBERLINE_TEST_WORKERS") == "simulated":  # see tests/settings.py
        pytest.skip("WORKERS=simulated: real vLLM was ruled out by the caller")
    default = ROOT / ".venv-vllm" / "bin" / "python"
    python = Path(os.environ.get("EMBERLINE_VLLM_PYTHON", default))
    if not python.exists():
        pytest.fail(f"no vLLM at {python}: run `make vllm` (or set WORKERS=simulated)")
    return python


def model_path() -> Path:
    default = ROOT / "var" / "models" / "smollm2-135m-instruct"
    model = Path(os.environ.get("EMBERLINE_MODEL", default))
    if not (model / "config.json").exists():
        pytest.fail(f"no model at {model}: run `make vllm` (or set WORKERS=simulated)")
    return model
