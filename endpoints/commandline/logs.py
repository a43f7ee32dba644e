"""logs: the end of one container's log, and with -f what is written from then on."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import Any

from console.provisioners.base import ProvisionError
from endpoints import log_sources, selectors
from endpoints.log_sources import MOST_LINES, TAIL_LINES, Container
from endpoints.models import Endpoint
from endpoints.refusals import logs_away


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


def logs(options: dict[str, Any]) -> str:
    """Which log it is goes to standard error, so that the log alone can be piped."""
    endpoint = selectors.one(options["name"])
    at = log_sources.chosen(endpoint, options["worker"], options["container"])
    if at is None:
        return f"{endpoint.name} has no worker yet: emberline endpoint wait {endpoint.name}"
    sys.stderr.write(_heading(endpoint, at))
    with suppress(KeyboardInterrupt):
        _print(endpoint, at, options)
    return ""


def _print(endpoint: Endpoint, at: Container, options: dict[str, Any]) -> None:
    try:
        lines = log_sources.source(endpoint, at).end(options["tail"], stay=options["follow"])
        for line in lines:
            sys.stdout.write(f"{line.text}\n")
            sys.stdout.flush()
    except ProvisionError as error:
        raise logs_away(error.reason, error.message) from error


def _heading(endpoint: Endpoint, at: Container) -> str:
    others = len(log_sources.containers(endpoint)) - 1
    more = f"; {others} more: --worker, --container" if others else ""
    return f"# {at.name} of {at.replica}, {at.state}{more}\n"


def _lines(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text[:9]) <= MOST_LINES:
        raise argparse.ArgumentTypeError(f"{text!r}: give a number from 1 to {MOST_LINES}.")
    return int(text)
