"""endpoint key list | create | update | rotate | revoke | usage."""

from __future__ import annotations

import argparse
from typing import Any

from console.commandline import read, show
from console.commandline.asked import Asked, Run, Wrong
from console.commandline.exits import NOT_FOUND

_HEAD = ("ID", "NAME", "BEGINS WITH", "LIMITS", "ENDS", "LAST USED", "CREATED")
_UNLIMITED: tuple[Any, ...] = (None, 0, False, [], "", 1.0)
_TERMS = "what it may, such as requests_per_minute=60 or expires_in_days=30"


def add_to(verbs: Any) -> None:
    keys = verbs.add_parser("key", help="callers' keys of an endpoint")
    what = keys.add_subparsers(dest="what", required=True, metavar="VERB")
    show.add_output(_verb(what, "list", "what each may and who made it", list_keys), names=True)
    made = _verb(what, "create", "prints the key, once and alone", create)
    made.add_argument("key_name", help="the program that will use it")
    made.add_argument("terms", nargs="*", metavar="FIELD=VALUE", help=_TERMS)
    changed = _verb(what, "update", "change what it may", update)
    changed.add_argument("key_id")
    changed.add_argument("terms", nargs="+", metavar="FIELD=VALUE", help=_TERMS)
    turned = _verb(what, "rotate", "prints its new secret, once and alone", rotate)
    turned.add_argument("key_id")
    turned.add_argument(
        "--grace", type=int, help="seconds for which the present secret is let in too"
    )
    _verb(what, "revoke", "the router refuses it within seconds", revoke).add_argument("key_id")
    used = _verb(what, "usage", "what each key used", usage)
    used.add_argument("--days", type=int, help="of so many last days")
    show.add_output(used)


def _verb(what: Any, verb: str, text: str, run: Run) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = what.add_parser(verb, help=text)
    parser.add_argument("name", help="the endpoint")
    parser.set_defaults(run=run)
    return parser


def list_keys(asked: Asked) -> str:
    found = asked.client.endpoints.keys(asked.name)
    none = f"There are no keys. Make one: emberline endpoint key create {asked.name} PROGRAM"
    return show.rows(found, asked.options["output"], _HEAD, _cells, none=none, key="id")


def _cells(key: Any) -> tuple[str, ...]:
    terms = dict(key.get("terms") or {})
    ends = terms.pop("expires_at", None)
    limits = [f"{name}={_short(value)}" for name, value in terms.items() if _limits(name, value)]
    return (
        key["id"],
        key["name"],
        f"{key['prefix']}…",
        " ".join(limits) or "-",
        show.when(ends) or "never",
        show.when(key.get("last_used_at")) or "-",
        show.when(key["created_at"])[:16],
    )


def _limits(name: str, value: Any) -> bool:
    return value not in _UNLIMITED and name != "budget_period"


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def create(asked: Asked) -> str:
    """The key alone, so that it can be piped into a file."""
    label, terms = asked.options["key_name"], read.facts(asked.options["terms"])
    return asked.client.endpoints.create_key(asked.name, label, terms)["key"]


def update(asked: Asked) -> str:
    name = _known(asked)
    terms = read.facts(asked.options["terms"])
    asked.client.endpoints.change_key(asked.name, asked.options["key_id"], terms)
    return f"The key {name} is changed."


def rotate(asked: Asked) -> str:
    _known(asked)
    key_id, grace = asked.options["key_id"], asked.options["grace"]
    return asked.client.endpoints.rotate_key(asked.name, key_id, grace)["key"]


def revoke(asked: Asked) -> str:
    name = _known(asked)
    asked.client.endpoints.revoke_key(asked.name, asked.options["key_id"])
    return f"The key {name} is revoked."


def usage(asked: Asked) -> str:
    found = asked.client.endpoints.usage(asked.name, asked.options["days"])
    form = asked.options["output"]
    if form != show.TABLE:
        return show.written(found, form)
    head = ("KEY", "REQUESTS", "FAILED", "PROMPT", "CACHED", "COMPLETION")
    counted = ("requests", "failed", "prompt_tokens", "cached_tokens", "completion_tokens")
    every = [*found["keys"], {**found["total"], "key_name": "(all)"}]
    rows = [
        (
            row["key_name"] or row["key_id"] or "(without a key)",
            *(f"{row[name]:,}" for name in counted),
        )
        for row in every
    ]
    return f"Since {show.when(found['since'])}\n{show.table(head, rows)}"


def _known(asked: Asked) -> str:
    """Its name; an id that is none of this endpoint's would be no more than "not found"."""
    key_id = asked.options["key_id"]
    for key in asked.client.endpoints.keys(asked.name):
        if key["id"] == key_id:
            return key["name"]
    remedy = f"Choose one of: emberline endpoint key list {asked.name}"
    raise Wrong(f"{asked.name} has no key {key_id}. {remedy}", NOT_FOUND)
