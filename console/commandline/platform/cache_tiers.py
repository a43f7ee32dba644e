"""`emberline cache-tier ...`: manage, inspect and flush L2 cache tiers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.endpoint.changes import format_dry_run
from console.commandline.input import read_fields
from console.commandline.verbs import Table, Verb, Verbs


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    usage = one["usage"]
    lookups, hits = usage.get("lookups"), usage.get("hits")
    rate = f"{100 * hits / lookups:.0f} %" if lookups and hits is not None else "-"
    return (
        one["name"],
        one["phase"],
        one["reason"],
        str(one["node_count"]),
        output.size(one["memory_bytes"]),
        output.size(usage.get("used_bytes")),
        rate,
        ", ".join(one["used_by"]),
    )


def _format_tier(one: dict[str, Any]) -> Iterator[str]:
    reason = f" ({one['reason']})" if one["reason"] else ""
    yield f"{one['name']}: {one['phase']}{reason}. {one['message']}".rstrip()
    yield (
        f"  {output.count(one['node_count'], 'node')} with {output.size(one['memory_bytes'])} "
        f"memory and {output.size(one['disk_bytes'])} disk; replication factor {one['copies']}, "
        f"eviction policy {one['policy']}"
    )
    if one["cluster"]:
        limit = f"{one['cpu_limit_millis']}m" if one["cpu_limit_millis"] else "no"
        memory = one["memory_limit_bytes"]
        yield (
            f"  each node requests {one['cpu_millis']}m CPU ({limit} CPU limit"
            f"{f', {output.size(memory)} memory limit' if memory else ''})"
        )
    yield f"  used by {', '.join(one['used_by']) or 'no endpoint'}; url {one['url'] or 'unknown'}"
    if one["rebalancing"]:
        yield f"  rebalancing: {one['rebalancing']['message']}"
    if one["nodes"]:
        yield output.table(_NODE_COLUMNS, [_node_cells(node) for node in one["nodes"]])


_NODE_COLUMNS = ("NODE", "STATE", "BLOCKS", "SHARE", "MOVED IN", "URL", "RESTARTS", "MESSAGE")


def _node_cells(node: dict[str, Any]) -> tuple[str, ...]:
    share = "-" if node["share"] is None else f"{100 * node['share']:.0f} %"
    blocks, moved = (
        "-" if node[name] is None else f"{node[name]:.0f}" for name in ("blocks", "moved_in")
    )
    rest = (str(node[name]) for name in ("url", "restarts", "message"))
    return (str(node["name"]), str(node["state"]), blocks, share, moved, *rest)


def create(context: CommandContext) -> str:
    dry = context.options["dry_run"]
    data = {"name": context.name, **read_fields(context)}
    made = context.client.post("cache-tiers", data=data, once=True, dry_run=dry or None)
    if dry:
        return format_dry_run(made)
    return f"{context.name} created. Check: emberline cache-tier get {context.name}"


def update(context: CommandContext) -> str:
    dry = context.options["dry_run"]
    path, data = ("cache-tiers", context.name), read_fields(context)
    changed = context.client.patch(*path, data=data, dry_run=dry or None)
    if dry:
        return format_dry_run(changed)
    return f"{context.name} is at generation {changed['generation']}."


def flush(context: CommandContext) -> str:
    data = {"namespace": context.options["namespace"]}
    dropped = context.client.post("cache-tiers", context.name, "flush", data=data)["dropped"]
    return f"Flushed {output.count(dropped, 'value')} of {context.name}."


def _add_fields(verb: Verb) -> None:
    verb.spec("field, for example memory_bytes=1073741824")
    verb.add("--dry-run", action="store_true", help="show the changes without applying them")


_TIERS = Table(
    ("NAME", "PHASE", "REASON", "NODES", "MEMORY", "USED", "HIT RATE", "USED BY"),
    _cells,
    "No cache tiers. Create one: emberline cache-tier create NAME",
)


def add_cache_tiers(rooms: Verbs) -> None:
    verbs, path = rooms.group("cache-tier", "manage L2 cache tiers"), "cache-tiers/{name}/"
    verbs.verb("list", "list cache tiers", call="GET cache-tiers/", show=_TIERS)
    text = "show a cache tier with its nodes"
    verbs.verb("get", text, "name", call=f"GET {path}", show=_format_tier)
    text, call = "show contents by namespace", f"GET {path}contents/"
    verbs.verb("contents", text, "name", call=call, show=output.format_yaml)
    verb = verbs.verb("create", "create a cache tier and start its nodes", "name", call=create)
    _add_fields(verb)
    verb = verbs.verb("update", "change the given fields", "name", call=update)
    _add_fields(verb)
    verb = verbs.verb(
        "flush", "delete cached values of a namespace, or all values with --all", "name", call=flush
    )
    either = verb.one_of(required=True)
    help_text = "namespace in the output of contents"
    verb.add("--namespace", default="", help=help_text, to=either)
    verb.add("--all", action="store_true", help="all namespaces", to=either)
    verb.ask_first("Flushing cache tier {name} deletes cached values; prompts are computed again.")
    text = "delete a cache tier that no endpoint uses"
    done = "{name} is being deleted."
    verb = verbs.verb("delete", text, "name", call=f"DELETE {path}", show=done)
    verb.ask_first("Deleting cache tier {name} stops its nodes and deletes all cached values.")
