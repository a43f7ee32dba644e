"""`endpoint key list | create | update | rotate | revoke | usage`."""

from __future__ import annotations

from typing import Any

from console.client import documents
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.input import find_row, parse_facts
from console.commandline.verbs import Table, Verbs, endpoint_verb

_UNLIMITED: tuple[Any, ...] = (None, 0, False, [], "", 1.0)
_WHICH = "id or name of the key"
_TERMS = "what it may, such as requests_per_minute=60 or expires_in_days=30"


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
    label, terms = asked.options["key_name"], parse_facts(asked.options["terms"])
    return asked.client.endpoints.create_key(asked.name, label, terms)["key"]


def update(asked: CommandContext) -> str:
    key = _key(asked)
    asked.client.endpoints.change_key(asked.name, key["id"], parse_facts(asked.options["terms"]))
    return f"The key {key['name']} is changed."


def rotate(asked: CommandContext) -> str:
    grace = asked.options["grace"]
    return asked.client.endpoints.rotate_key(asked.name, _key(asked)["id"], grace)["key"]


def revoke(asked: CommandContext) -> str:
    key = _key(asked)
    asked.client.endpoints.revoke_key(asked.name, key["id"])
    return f"The key {key['name']} is revoked."


def _key(asked: CommandContext) -> documents.Key:
    rows, name = asked.client.endpoints.keys(asked.name), asked.name
    listing = f"emberline endpoint key list {name}"
    return find_row(rows, asked.options["key_id"], f"key of {name}", listing)


def _format_usage(found: dict[str, Any]) -> str:
    every = [*found["keys"], {**found["total"], "key_name": "(all)"}]
    return f"Since {output.format_time(found['since'])}\n{_USAGE.text(every)}"


def _usage_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["key_name"] or row["key_id"] or "(without a key)",
        *(f"{row[name]:,}" for name in _COUNTED),
        f"{row['estimated_prompt_tokens'] + row['estimated_completion_tokens']:,}",
    )


_COUNTED = ("requests", "failed", "prompt_tokens", "cached_tokens", "completion_tokens")
_USAGE = Table(
    ("KEY", "REQUESTS", "FAILED", "PROMPT", "CACHED", "COMPLETION", "ESTIMATED"), _usage_cells
)
_KEYS = Table(
    ("ID", "NAME", "BEGINS WITH", "LIMITS", "ENDS", "LAST USED", "CREATED"),
    _cells,
    "There are no keys. Make one: emberline endpoint key create {name} PROGRAM",
)


def add_to(verbs: Verbs) -> None:
    keys = verbs.group("key", "callers' keys of an endpoint", client="endpoints", dest="what")
    endpoint_verb(keys, "list", "what each may and who made it", call="keys", show=_KEYS)
    verb = endpoint_verb(keys, "create", "prints the key, once and alone", call=create)
    verb.add("key_name", help="the program that will use it")
    verb.fields(_TERMS, "terms", "*")
    verb = endpoint_verb(keys, "update", "change what it may", call=update)
    verb.add("key_id", help=_WHICH)
    verb.fields(_TERMS, "terms")
    verb = endpoint_verb(keys, "rotate", "prints its new secret, once and alone", call=rotate)
    verb.add("key_id", help=_WHICH)
    text = "seconds for which the present secret is let in too"
    verb.add("--grace", type=int, help=text)
    verb = endpoint_verb(keys, "revoke", "the router refuses it within seconds", call=revoke)
    verb.add("key_id", help=_WHICH)
    verb = endpoint_verb(keys, "usage", "what each key used", show=_format_usage)
    verb.add("--days", type=int, help="of so many last days")
