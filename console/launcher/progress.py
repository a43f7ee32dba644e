"""Progress output: steps with their duration."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from console.processkit.launch import end_with_parent


class StepFailed(Exception):
    """A step failed. The message states the fix; `output` is the end of the command's output."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


def print_line(text: str = "", end: str = "\n") -> None:
    """Print; ignore a closed terminal, so that stopping continues."""
    with suppress(OSError):
        print(text, end=end, flush=True)


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print the title before and the elapsed time after the block."""
    live = sys.stdout.isatty()
    started = time.monotonic()
    if live:
        print_line(f"  … {title}", end="\r")
    else:
        print_line(f"  … {title}")
    try:
        yield
    except BaseException:
        print_line(f"  ✗ {title} ({time.monotonic() - started:.1f} s)          ")
        raise
    print_line(f"  ✓ {title} ({time.monotonic() - started:.1f} s)          ")


def die_with_launcher() -> None:
    """Run between fork and exec: if this process is killed, its step must not continue beside the
    next `up`.
    """
    end_with_parent(signal.SIGKILL)


def run(
    command: Sequence[str | Path],
    failure: str,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 1800.0,
    accepted: Sequence[int] = (0,),
) -> str:
    """Run silently; raise `StepFailed(failure)` with the end of the output unless the exit status
    is in `accepted`.
    """
    try:
        done = subprocess.run(
            [str(part) for part in command],
            env=dict(env) if env is not None else None,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            preexec_fn=die_with_launcher,
        )
    except FileNotFoundError as error:
        raise StepFailed(f"{failure}: {error.filename} does not exist") from error
    except subprocess.TimeoutExpired as error:
        raise StepFailed(f"{failure}: not finished after {timeout_s:.0f} s") from error
    if done.returncode not in accepted:
        tail = "\n".join(done.stdout.splitlines()[-25:])
        raise StepFailed(f"{failure} (exit {done.returncode})", tail)
    return done.stdout
