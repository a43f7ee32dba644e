"""Paths on this machine, and facts kept between runs (ports, worker mode)."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.launcher.progress import StepFailed, print_line
from console.processkit.files import make_private_dir, write_private
from console.provisioners.local import ports
from console.provisioners.local.supervisord import include_dir

ROOT = Path(__file__).resolve().parent.parent.parent
MODEL_NAME = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Layout:
    var: Path

    @property
    def secrets(self) -> Path:
        return self.var / "secrets"

    @property
    def logs(self) -> Path:
        return self.var / "log"

    @property
    def run(self) -> Path:
        return self.var / "run"

    @property
    def supervisor(self) -> Path:
        return self.var / "supervisor"

    @property
    def tools(self) -> Path:
        return self.var / "tools"

    @property
    def model(self) -> Path:
        return self.var / "models" / MODEL_NAME

    @property
    def prometheus(self) -> Path:
        return self.var / "prometheus"

    @property
    def alertmanager(self) -> Path:
        return self.var / "alertmanager"

    @property
    def facts(self) -> Path:
        return self.var / "launcher.json"

    @property
    def kept_environment(self) -> Path:
        return self.run / "told.json"

    @property
    def vllm_python(self) -> Path:
        """Return the interpreter of the vLLM environment or EMBERLINE_VLLM_PYTHON."""
        named = os.environ.get("EMBERLINE_VLLM_PYTHON")
        return Path(named) if named else ROOT / ".venv-vllm" / "bin" / "python"

    def prepare(self) -> None:
        """Create the folders with access for the owner only: they contain sessions and request
        data.
        """
        for folder in (self.var, self.logs, include_dir(self.var), self.prometheus):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.var, self.secrets, self.run):
            make_private_dir(folder)


def default_layout() -> Layout:
    named = os.environ.get("EMBERLINE_VAR")
    return Layout(Path(named).resolve() if named else ROOT / "var")


def read_facts(layout: Layout) -> dict[str, Any]:
    try:
        document = json.loads(layout.facts.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def write_facts(layout: Layout, **changes: object) -> dict[str, Any]:
    merged = read_facts(layout) | changes
    write_private(layout.facts, json.dumps(merged, indent=1))
    return merged


def remembered_port(layout: Layout, name: str, first: int) -> int:
    """Return the previous port of `name`, else the first free one from `first` on, and store it.

    A stored port held by another process is replaced with a notice: only our own programs use it.
    Raises StepFailed if no port is free.
    """
    remembered = read_facts(layout).get(f"{name}_port")
    usable = [remembered] if isinstance(remembered, int) and 0 < remembered < 65536 else []
    candidates = usable + list(range(first, first + 200))
    for port in candidates:
        if ports.is_free(port):
            if usable and port != usable[0]:
                held = ports.port_holder(usable[0])[1]
                print_line(
                    f"  ! Port {usable[0]} of {name} is in use by {held}: {name} moves to {port}."
                )
            write_facts(layout, **{f"{name}_port": port})
            return port
    raise StepFailed(f"No free port for {name} in {first}-{first + 199} on {ports.HOST}.")
