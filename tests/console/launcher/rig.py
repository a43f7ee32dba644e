"""`up` over a real supervisord, with fast stand-ins for its steps.

    python -m tests.console.launcher.rig VAR up|down [STEP:SIGNAL]

Each step appends its name to VAR/steps; at STEP the process sends itself SIGNAL. Identified by its
argv, like console.launcher.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from console.launcher import lifecycle, processes, progress
from console.launcher.layout import Layout
from console.launcher.processes import Services
from console.provisioners.local.supervisord import Program

IDLE = (sys.executable, "-S", "-c", "import signal; signal.pause()")
HANG = "hang"


def main(var: Path, verb: str, fault: str) -> int:
    # A shell starts background jobs with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    layout = Layout(var)
    at, _, number = fault.partition(":")

    def reached(step: str) -> None:
        with (var / "steps").open("a") as file:
            file.write(f"{step}\n")
        if step != at:
            return
        if number == HANG:
            signal.pause()
        os.kill(os.getpid(), getattr(signal, number))

    @contextmanager
    def step(title: str) -> Iterator[None]:
        reached(f"before {title}")
        yield
        reached(f"after {title}")

    def prepare(_layout: Layout) -> Services:
        layout.prepare()
        with step("prepare"):
            return Services("127.0.0.1", 8000, "simulated", None, None)

    def manage(argv: list[str], **_more: Any) -> SimpleNamespace:
        name = next(word for word in ("emberline_admin", "seed-demo", "wait") if word in argv)
        reached(f"before {name}")
        (var / name).touch()
        reached(f"after {name}")
        return SimpleNamespace(returncode=0)

    progress.step = lifecycle.step = step  # type: ignore[assignment]
    lifecycle._prepare = prepare
    lifecycle._is_responding = lambda _url: True  # type: ignore[assignment]
    lifecycle.subprocess = SimpleNamespace(run=manage, Popen=None)  # type: ignore[assignment]
    processes.service_programs = lambda *_: [Program("idle", IDLE, start_secs=0)]
    verbs = {
        "up": lambda: lifecycle.up(layout, detach=True),
        "down": lambda: lifecycle.down(layout),
    }
    try:
        return verbs[verb]()
    except progress.StepFailed as error:
        print(error)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""))
