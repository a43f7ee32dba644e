"""`endpoint key list | create | update | rotate | revoke | usage`."""

from __future__ import annotations

from typing import Any

from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.input import confirm, find_row, parse_facts
from console.commandline.verbs import Table, Verbs, endpoint_verb

_UNLIMITED: tuple[Any, ...] = (None, 0, False, [], "", 1.0)
_CONSOLE = "console"
_WHICH = "key name or ID"
_TERMS = "limits, for example requests_per_minute=60 or expires_in_days=30"


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


def create(context: CommandContext) -> str:
    """Print only the key, so that it can be piped into a file."""
    label, terms = context.options["key_name"], parse_facts(context.options["terms"])
    data = {"name": label, **terms}
    key: str = context.client.post(*_keys(context), data=data, once=True)["key"]
    context.report("Routers accept the key within 2 seconds, on a cluster within 15.")
    return key


def update(context: CommandContext) -> str:
    key = _key(context)
    context.client.patch(*_keys(context), key["id"], data=parse_facts(context.options["terms"]))
    return f"Key {key['name']} changed."


def rotate(context: CommandContext) -> str:
    grace = context.options["grace"]
    data = {} if grace is None else {"grace_s": grace}
    path = (*_keys(context), _key(context)["id"], "rotate")
    return str(context.client.post(*path, data=data)["key"])


def revoke(context: CommandContext) -> str:
    key = _key(context)
    text = f"Revoking key {key['name']} cannot be undone; routers reject it within seconds."
    confirm(context, key["name"], text)
    context.client.delete(*_keys(context), key["id"])
    return f"Key {key['name']} revoked."


def _keys(context: CommandContext) -> tuple[str, ...]:
    return "endpoints", context.name, "keys"


def _key(context: CommandContext) -> dict[str, Any]:
    return _find_key(context, context.options["key_id"])


def _find_key(context: CommandContext, given: str) -> dict[str, Any]:
    rows, name = context.client.pages(*_keys(context)), context.name
    return find_row(rows, given, f"key of {name}", f"emberline endpoint key list {name}")


def find_key_id(context: CommandContext, given: str) -> str:
    """Return the ID of a key given by name or ID; "" and the console's own key as they are."""
    return given if given in ("", _CONSOLE) else str(_find_key(context, given)["id"])


def _format_usage(found: dict[str, Any]) -> str:
    every = [*found["keys"], {**found["total"], "key_name": "(all)"}]
    return f"Since {output.format_time(found['since'])}\n{_USAGE.text(every)}"


def _usage_cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["key_name"] or row["key_id"] or "(no key)",
        *(f"{row[name]:,}" for name in _COUNTED),
        f"{row['estimated_prompt_tokens'] + row['estimated_completion_tokens']:,}",
    )


_COUNTED = ("requests", "failed", "prompt_tokens", "cached_tokens", "completion_tokens")
_USAGE = Table(
    ("KEY", "REQUESTS", "FAILED", "PROMPT", "CACHED", "COMPLETION", "ESTIMATED"), _usage_cells
)
_KEYS = Table(
    ("ID", "NAME", "PREFIX", "LIMITS", "EXPIRES", "LAST USED", "CREATED"),
    _cells,
    "No keys. Create one: emberline endpoint key create {name} KEY_NAME",
)


def add_to(verbs: Verbs) -> None:
    keys = verbs.group("key", "inference keys of an endpoint", dest="what")
    call = "GET endpoints/{name}/keys/"
    endpoint_verb(keys, "list", "list keys with their limits", call=call, show=_KEYS)
    verb = endpoint_verb(keys, "create", "create a key; prints only the key, once", call=create)
    verb.add("key_name", help="key name, for example the client application")
    verb.fields(_TERMS, "terms", "*")
    verb = endpoint_verb(keys, "update", "change the limits of a key", call=update)
    verb.add("key_id", help=_WHICH)
    verb.fields(_TERMS, "terms")
    verb = endpoint_verb(
        keys, "rotate", "replace the secret; prints only the new key, once", call=rotate
    )
    verb.add("key_id", help=_WHICH)
    text = "seconds for which the old secret stays valid"
    verb.add("--grace", type=int, help=text)
    verb = endpoint_verb(
        keys, "revoke", "revoke a key; routers reject it within seconds", call=revoke
    )
    verb.add("key_id", help=_WHICH)
    verb.ask_first()
    call = "GET endpoints/{name}/usage/"
    verb = endpoint_verb(keys, "usage", "show usage by key", call=call, show=_format_usage)
    verb.add("--days", type=int, help="number of days")
