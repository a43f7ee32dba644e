"""Background runs of an endpoint (benchmark, what-if analysis, advice): wait for the end."""

from __future__ import annotations

import time
from typing import Any

from console.commandline import output
from console.commandline.context import FAILED, TIMEOUT, CommandContext, CommandError
from console.commandline.verbs import Verb

LIVE = ("queued", "running")
POLL_S = 1.0


def wait_for_end(
    context: CommandContext, run: dict[str, Any], path: tuple[str, ...], kind: str, cancel: str
) -> dict[str, Any]:
    """Poll the run at `path` and print each stage; raise CommandError if it fails or at the
    timeout, after which it continues: `cancel` is the command that stops it.
    """
    end, printed = time.monotonic() + context.options["timeout"], ""
    while run["state"] in LIVE:
        share = f"{run['share']:.0%}" if "share" in run else run["state"]
        line = f"  {share} {run['stage']}".rstrip()
        if line != printed:
            context.report(line)
            printed = line
        if time.monotonic() > end:
            text = (
                f"Timed out after {context.options['timeout']:g} s. The {kind} continues. "
                f"Cancel: emberline endpoint {cancel}"
            )
            raise CommandError(text, TIMEOUT)
        context.client.pause(POLL_S)
        run = context.client.get(*path)
    if run["state"] == "failed":
        raise CommandError(f"The {kind} failed. {run['message']}", FAILED)
    return run


def text_or_data(context: CommandContext, run: dict[str, Any], text: str) -> str:
    form = context.options["output"]
    return text if form == output.TABLE else output.format_data(run, form)


def add_wait(verb: Verb) -> None:
    verb.add("--wait", action="store_true", help="wait for the end and print the results")
    verb.add("--timeout", type=float, default=3600.0, help="timeout in seconds (3600)")
