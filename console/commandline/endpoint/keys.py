"""`endpoint key list | create | update | rotate | revoke | usage`."""

from __future__ import annotations

from typing import Any

from console.client import documents
from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.verbs import add_endpoint_verb, add_group

_HEAD = ("ID", "NAME", "BEGINS WITH", "LIMITS", "ENDS", "LAST USED", "CREATED")
_UNLIMITED: tuple[Any, ...] = (None, 0, False, [], "", 1.0)
_WHICH = "id or name of the key"
_TERMS = "what it may, such as requests_per_minute=60 or expires_in_days=30"


def add_to(verbs: Any) -> None:
    what = add_group(verbs, "key", "callers' keys of an endpoint", dest="what")
    output.add_output(
        add_endpoint_verb(what, "list", "what each may and who made it", list_keys), names=True
    )
    made = add_endpoint_verb(what, "create", "prints the key, once and alone", create)
    made.add_argument("key_name", help="the program that will use it")
    made.add_argument("terms", nargs="*", metavar="FIELD=VALUE", help=_TERMS)
    changed = add_endpoint_verb(what, "update", "change what it may", update)
    changed.add_argument("key_id", help=_WHICH)
    changed.add_argument("terms", nargs="+", metavar="FIELD=VALUE", help=_TERMS)
    turned = add_endpoint_verb(what, "rotate", "prints its new secret, once and alone", rotate)
    turned.add_argument("key_id", help=_WHICH)
    turned.add_argument(
        "--grace", type=int, help="seconds for which the present secret is let in too"
    )
    ended = add_endpoint_verb(what, "revoke", "the router refuses it within seconds", revoke)
    ended.add_argument("key_id", help=_WHICH)
    used = add_endpoint_verb(what, "usage", "what each key used", usage)
    used.add_argument("--days", type=int, help="of so many last days")
    output.add_output(used)


def list_keys(asked: CommandContext) -> str:
    found = asked.client.endpoints.keys(asked.name)
    none = f"There are no keys. Make one: emberline endpoint key create {asked.name} PROGRAM"
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none, key="id")


def _cells(key: Any) -> tuple[str, ...]:
    terms = dict(key.get("terms") or {})
    ends = terms.pop("expires_at", None)
    limits = [
        f"{name}={_format_value(value)}" for name, value in terms.items() if _limits(name, value)
    ]
    return (
        key["id"],
        key["name"],
        f"{key['prefix']}…",
        " ".join(limits) or "-",
        output.format_time(ends) or "never",
        output.format_time(key.get("last_used_at")) or "-",
        output.format_time(key["created_at"])[:16],
    )


def _limits(name: str, value: Any) -> bool:
    return value not in _UNLIMITED and name != "budget_period"


def _format_value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def create(asked: CommandContext) -> str:
    """Print only the key, so that it can be piped into a file."""
    label, terms = asked.options["key_name"], commandline_input.parse_facts(asked.options["terms"])
    return asked.client.endpoints.create_key(asked.name, label, terms)["key"]


def update(asked: CommandContext) -> str:
    key = _key(asked)
    asked.client.endpoints.change_key(
        asked.name, key["id"], commandline_input.parse_facts(asked.options["terms"])
    )
    return f"The key {key['name']} is changed."


def rotate(asked: CommandContext) -> str:
    grace = asked.options["grace"]
    return asked.client.endpoints.rotate_key(asked.name, _key(asked)["id"], grace)["key"]


def revoke(asked: CommandContext) -> str:
    key = _key(asked)
    asked.client.endpoints.revoke_key(asked.name, key["id"])
    return f"The key {key['name']} is revoked."


def usage(asked: CommandContext) -> str:
    found = asked.client.endpoints.usage(asked.name, asked.options["days"])
    form = asked.options["output"]
    if form != output.TABLE:
        return output.format_data(found, form)
    head = ("KEY", "REQUESTS", "FAILED", "PROMPT", "CACHED", "COMPLETION", "ESTIMATED")
    counted = ("requests", "failed", "prompt_tokens", "cached_tokens", "completion_tokens")
    every = [*found["keys"], {**found["total"], "key_name": "(all)"}]
    rows = [
        (
            row["key_name"] or row["key_id"] or "(without a key)",
            *(f"{row[name]:,}" for name in counted),
            f"{row['estimated_prompt_tokens'] + row['estimated_completion_tokens']:,}",
        )
        for row in every
    ]
    return f"Since {output.format_time(found['since'])}\n{output.table(head, rows)}"


def _key(asked: CommandContext) -> documents.Key:
    rows, name = asked.client.endpoints.keys(asked.name), asked.name
    listing = f"emberline endpoint key list {name}"
    return commandline_input.find_row(rows, asked.options["key_id"], f"key of {name}", listing)
