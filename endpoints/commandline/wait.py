"""wait: watch an endpoint come up, step by step, until it is Ready or the time is over."""

from __future__ import annotations

import sys
import time
from typing import Any

from django.core.management.base import CommandError

from endpoints import selectors
from endpoints.choices import STEP_LABELS, Phase, Step
from endpoints.commandline.show import described
from endpoints.models import Endpoint

LOOK_S = 0.5
FAILED_LOOKS = 20
"""A Failed endpoint may heal by itself; after so many looks it is given up."""


def add_to(verbs: Any) -> None:
    parser = verbs.add_parser("wait", help="until the endpoint is in a phase")
    parser.add_argument("name")
    parser.add_argument("--for", dest="phase", default="Ready", choices=[str(p) for p in Phase])
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds")
    parser.set_defaults(run=wait)


def wait(options: dict[str, Any]) -> str:
    started = time.monotonic()
    told: dict[str, str] = {}
    failed = 0
    while True:
        endpoint = selectors.one(options["name"])
        _tell(endpoint, told, time.monotonic() - started)
        if endpoint.current and str(endpoint.shown_phase) == options["phase"]:
            return f"{endpoint.name} is {options['phase']}. {endpoint.status.url}"
        failed = failed + 1 if endpoint.shown_phase == Phase.FAILED else 0
        late = time.monotonic() - started > options["timeout"]
        if late or failed > FAILED_LOOKS:
            why = "It has failed." if failed else f"Not within {options['timeout']:.0f} s."
            raise CommandError(f"{why}\n{described(endpoint)}")
        time.sleep(LOOK_S)


def _tell(endpoint: Endpoint, told: dict[str, str], after_s: float) -> None:
    """A line for each step that has moved."""
    for step in endpoint.status.steps:
        state = f"{step['state']} {step['message']}".strip()
        if step["state"] == "waiting" or told.get(step["code"]) == state:
            continue
        told[step["code"]] = state
        label = STEP_LABELS[Step(step["code"])]
        sys.stdout.write(f"  {after_s:5.0f} s  {label}: {state}\n")
        sys.stdout.flush()
