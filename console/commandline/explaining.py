"""endpoint explain: where a request would go now; it is sent to no worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import Asked, Wrong
from console.commandline.endpoint.decisions import told
from console.commandline.exits import FAILED, USAGE


def add_to(verbs: Any) -> None:
    parser = verbs.add_parser("explain", help="where a request would go now, and why")
    parser.add_argument("name")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--prompt", help="one user's message; - reads standard input")
    what.add_argument("-f", "--file", help="a request's body as JSON or YAML; - standard input")
    parser.add_argument("--strategy", default="", help="another than the one in force")
    parser.add_argument("--session", default="", help="as callers name theirs")
    parser.add_argument("--key", default="", help="id of the key it is sent with")
    output.add_output(parser)
    parser.set_defaults(run=explain)


def explain(asked: Asked) -> str:
    options = asked.options
    found = asked.client.endpoints.explain(
        asked.name,
        _body(options),
        strategy=options["strategy"],
        session=options["session"],
        key=options["key"],
    )
    if options["output"] != output.TABLE:
        return output.written(found, options["output"])
    return "\n\n".join(_routers(found["routers"]))


def _body(options: dict[str, Any]) -> dict[str, Any]:
    if options["file"] is not None:
        return commandline_input.document(options["file"])
    prompt = commandline_input.text("-") if options["prompt"] == "-" else str(options["prompt"])
    if not prompt.strip():
        raise Wrong("The prompt is empty.", USAGE)
    return {"messages": [{"role": "user", "content": prompt}]}


def _routers(routers: list[dict[str, Any]]) -> Iterator[str]:
    """Of several, each has its own word; where none can tell it is a failure."""
    if routers and all(one["error"] for one in routers):
        raise Wrong("\n".join(dict.fromkeys(one["error"] for one in routers)), FAILED)
    for number, one in enumerate(routers, 1):
        head = [f"Router {number} of {len(routers)}:"] if len(routers) > 1 else []
        yield "\n".join([*head, one["error"] or told(one["ranking"] or {})])
