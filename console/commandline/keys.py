"""endpoint key list | create | revoke."""

from __future__ import annotations

from typing import Any

from console.client.shapes import Key
from console.commandline import show
from console.commandline.asked import Asked, Wrong
from console.commandline.exits import NOT_FOUND


def add_to(verbs: Any) -> None:
    keys = verbs.add_parser("key", help="callers' keys of an endpoint")
    what = keys.add_subparsers(dest="what", required=True, metavar="VERB")
    for verb, run, argument, text in (
        ("list", list_keys, "", "what each may and who made it"),
        ("create", create, "key_name", "prints the key, once and alone"),
        ("revoke", revoke, "key_id", "the router refuses it within seconds"),
    ):
        parser = what.add_parser(verb, help=text)
        parser.add_argument("name", help="the endpoint")
        if argument:
            parser.add_argument(argument)
        else:
            show.add_output(parser)
        parser.set_defaults(run=run)


def list_keys(asked: Asked) -> str:
    found = asked.client.endpoints.keys(asked.name)
    head = ("ID", "NAME", "BEGINS WITH", "CREATED")
    return show.rows(found, asked.options["output"], head, _cells, none="There are no keys.")


def _cells(key: Key) -> tuple[str, ...]:
    return key["id"], key["name"], f"{key['prefix']}…", show.when(key["created_at"])[:16]


def create(asked: Asked) -> str:
    """The key alone, so that it can be piped into a file."""
    return asked.client.endpoints.create_key(asked.name, asked.options["key_name"])["key"]


def revoke(asked: Asked) -> str:
    endpoints, key_id = asked.client.endpoints, asked.options["key_id"]
    known = {key["id"]: key["name"] for key in endpoints.keys(asked.name)}
    if key_id not in known:
        remedy = f"Choose one of: emberline endpoint key list {asked.name}"
        raise Wrong(f"{asked.name} has no key {key_id}. {remedy}", NOT_FOUND)
    endpoints.revoke_key(asked.name, key_id)
    return f"The key {known[key_id]} is revoked."
