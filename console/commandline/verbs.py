"""Declaration of command groups and verbs on an argument parser."""

from __future__ import annotations

import argparse
from typing import Any

from console.commandline import output
from console.commandline.context import Run


def add_group(commands: Any, name: str, text: str, dest: str = "verb") -> Any:
    """Add the command `name` and return the collection of its verbs."""
    parser = commands.add_parser(name, help=text)
    return parser.add_subparsers(dest=dest, required=True, metavar="VERB")


def add_verb(
    verbs: Any, name: str, run: Run, text: str, *arguments: str, listing: bool | None = None
) -> argparse.ArgumentParser:
    """Add a verb with positional `arguments`. `listing`: it takes an output format, with names for
    `xargs` if true; None: it does not.
    """
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=text)
    parser.set_defaults(run=run)
    for argument in arguments:
        parser.add_argument(argument)
    if listing is not None:
        output.add_output(parser, names=listing)
    return parser


def add_endpoint_verb(verbs: Any, name: str, text: str, run: Run) -> argparse.ArgumentParser:
    parser = add_verb(verbs, name, run, text)
    parser.add_argument("name", help="the endpoint")
    return parser
