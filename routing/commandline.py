"""`emberline endpoint doctor NAME`: every check, with what to do; the exit code is the verdict.

0: nothing that must be mended. 1: warnings. 2: errors, or there is no such endpoint.
"""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError

from endpoints import selectors as endpoint_selectors
from endpoints.commandline.parts import Answer
from endpoints.commandline.show import add_output, written
from endpoints.refusals import NotFoundError
from routing import selectors
from routing.doctor import show


def add_to(verbs: Any) -> None:
    parser = verbs.add_parser("doctor", help="look for everything that can keep kvaware from work")
    parser.add_argument("name")
    add_output(parser)
    parser.set_defaults(run=doctor)


def doctor(options: dict[str, Any]) -> Answer:
    try:
        endpoint = endpoint_selectors.get(options["name"])
    except NotFoundError as error:
        raise CommandError(str(error), returncode=2) from None
    found = selectors.examine(endpoint)
    form = options["output"]
    text = show.text(found) if form == "text" else written(found.data(), form)
    return Answer(text, found.exit_code)
