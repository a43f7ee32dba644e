"""endpoint logs: the end of one container's log, and with -f what is written from then on."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

from console.client.errors import Conflict
from console.client.logs import MOST_LINES, TAIL_LINES, LogEnd
from console.commandline import output
from console.commandline.context import Asked


def add_to(verbs: Any) -> None:
    parser = verbs.add_parser("logs", help="the log of a worker or a router")
    parser.add_argument("name")
    parser.add_argument("--worker", default="", help="which one; the first if none is named")
    parser.add_argument("--container", default="", help="which of its containers")
    parser.add_argument(
        "--tail", type=_lines, default=TAIL_LINES, help=f"so many lines of its end ({TAIL_LINES})"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until Ctrl-C")
    parser.set_defaults(run=logs)


def logs(asked: Asked) -> str:
    """Which log it is goes to standard error, so that the log alone can be piped."""
    options = asked.options
    which = (asked.name, options["worker"], options["container"], options["tail"])
    try:
        of, lines = asked.client.endpoints.logs(*which, follow=options["follow"])
    except Conflict as error:
        if error.code != "no_worker":
            raise
        return f"{asked.name} has no worker yet: emberline endpoint wait {asked.name}"
    asked.say(_heading(of))
    with suppress(KeyboardInterrupt):
        for line in lines:
            asked.out.write(f"{output.plain(line)}\n")
            asked.out.flush()
    return ""


def _heading(of: LogEnd) -> str:
    more = f"; {of['others']} more: --worker, --container" if of["others"] else ""
    return f"# {of['container']} of {of['worker']}, {of['state']}{more}"


def _lines(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= MOST_LINES:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number from 1 to {MOST_LINES}.")
    return int(text)
