"""`wait` and `--wait`: follow an endpoint until the phase is reached, it failed permanently, or the
timeout expires.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from console.client import NotFound, TimedOut, Watch
from console.commandline import output
from console.commandline.context import FAILED, TIMEOUT, CommandContext, CommandError
from console.commandline.endpoint.endpoints import format_endpoint, step_label
from console.commandline.verbs import Verb, Verbs
from endpoints.choices import Phase

TIMEOUT_S = 600.0
RECOVERY_S = 10.0
"""Time a Failed endpoint is given to recover by itself."""
DELETED = "deleted"


def wait_after_change(context: CommandContext, endpoint: dict[str, Any], text: str) -> str:
    """Return `text`; with --wait, the outcome of the change that produced `endpoint`."""
    if not context.options["wait"]:
        return text
    context.report(text)
    paused = endpoint["replicas"] == 0
    return wait_until_phase(context, endpoint["name"], Phase.PAUSED if paused else Phase.READY)


def wait_until_phase(context: CommandContext, name: str, phase: str) -> str:
    """Return the message on success; raise CommandError on permanent failure or timeout."""
    printer = _StepPrinter(context)
    deadline = time.monotonic() + context.options["timeout"]
    try:
        context.client.get("endpoints", name)  # raise NotFound instead of waiting
    except NotFound:
        if phase != DELETED:
            raise
        return f"{name} is deleted."
    watch = Watch(context.client, ("endpoints", name), context.options["timeout"])
    try:
        for state in watch:
            printer.how(watch)
            endpoint = _wait_for_recovery(context, printer.of(state), deadline)
            if (
                endpoint["observed_generation"] == endpoint["generation"]
                and endpoint["phase"] == phase
            ):
                return f"{name} is {phase}. {endpoint['public_url'] or endpoint['url']}".rstrip()
    except TimedOut:
        why = f"Timed out after {context.options['timeout']:.0f} s."
        raise CommandError(printer.with_last_state(why), TIMEOUT) from None
    if phase != DELETED:
        raise CommandError(printer.with_last_state(f"{name} was deleted while waiting."), FAILED)
    return f"{name} is deleted."


def _wait_for_recovery(
    context: CommandContext, state: dict[str, Any], deadline: float
) -> dict[str, Any]:
    """Return the state; if it is Failed, wait for the next one or the deadline."""
    printer = _StepPrinter(context)
    begun = time.monotonic()
    while state["phase"] == Phase.FAILED:
        now = time.monotonic()
        if now - begun > RECOVERY_S or now > deadline:
            raise CommandError(f"The rollout failed.\n{format_endpoint(state)}", FAILED)
        context.client.pause(min(0.5, max(deadline - now, 0)))
        state = printer.of(context.client.get("endpoints", state["name"]))
    return state


@dataclass(slots=True)
class _StepPrinter:
    context: CommandContext
    last: dict[str, Any] | None = None
    began: float = field(default_factory=time.monotonic)
    printed: dict[str, str] = field(default_factory=dict)
    fallback: str = ""

    def of(self, state: Any) -> dict[str, Any]:
        endpoint: dict[str, Any] = state
        self.last = endpoint
        if endpoint["observed_generation"] != endpoint["generation"]:
            return endpoint  # its steps are those of the revision before
        after_s = time.monotonic() - self.began
        for step in endpoint["steps"]:
            line = f"{step['state']} {step['message']}".strip()
            if step["state"] != "waiting" and self.printed.get(step["code"]) != line:
                self.printed[step["code"]] = line
                self.context.report(
                    f"  {after_s:5.0f} s  {step_label(step['code'])}: "
                    f"{output.strip_control_characters(line)}"
                )
        return endpoint

    def how(self, watch: Watch) -> None:
        """Print once if the watch fell back to polling."""
        if watch.fallback and self.context.here is None and not self.fallback:
            self.fallback = watch.fallback
            self.context.report(f"  (polling instead of watching: {watch.fallback})")

    def with_last_state(self, why: str) -> str:
        return why if self.last is None else f"{why}\n{format_endpoint(self.last)}"


def add_wait(verb: Verb) -> None:
    verb.add("--wait", action="store_true", help="wait until done and print each step")
    _add_timeout(verb)


def _add_timeout(verb: Verb) -> None:
    text = f"timeout in seconds ({TIMEOUT_S:.0f})"
    verb.add("--timeout", type=float, default=TIMEOUT_S, help=text)


def add_to(verbs: Verbs) -> None:
    verb = verbs.verb(
        "wait",
        "wait until the endpoint is in a phase, or deleted",
        "name",
        call=lambda context: wait_until_phase(context, context.name, context.options["phase"]),
    )
    phases = [*(str(phase) for phase in Phase), DELETED]
    verb.add(
        "--for", dest="phase", default="Ready", choices=phases, help="phase to wait for (Ready)"
    )
    _add_timeout(verb)
