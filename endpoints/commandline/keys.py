"""key list | create | revoke."""

from __future__ import annotations

from typing import Any

from endpoints import actions, selectors
from endpoints.actions import SYSTEM
from endpoints.commandline.show import table


def add_to(verbs: Any) -> None:
    keys = verbs.add_parser("key", help="callers' keys of an endpoint")
    what = keys.add_subparsers(dest="what", required=True, metavar="VERB")
    for verb, run, argument in (
        ("list", list_keys, ""),
        ("create", create, "key_name"),
        ("revoke", revoke, "key_id"),
    ):
        parser = what.add_parser(verb)
        parser.add_argument("name", help="the endpoint")
        if argument:
            parser.add_argument(argument)
        parser.set_defaults(run=run)


def list_keys(options: dict[str, Any]) -> str:
    rows = selectors.living_keys(selectors.get(options["name"]))
    return table(
        ("ID", "NAME", "BEGINS WITH", "CREATED"),
        [
            (str(key.pk), key.name, f"{key.prefix}…", key.created_at.strftime("%Y-%m-%d %H:%M"))
            for key in rows
        ],
    )


def create(options: dict[str, Any]) -> str:
    """The key alone, so that it can be piped into a file."""
    return actions.create_key(SYSTEM, options["name"], options["key_name"]).clear


def revoke(options: dict[str, Any]) -> str:
    key = actions.revoke_key(SYSTEM, options["name"], options["key_id"])
    return f"The key {key.name} is revoked."
