"""`emberline cache-tier ...`: manage, inspect and flush L2 cache tiers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.client.documents import CacheTier
from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.endpoint.changes import format_dry_run
from console.commandline.verbs import add_group, add_verb

_HEAD = ("NAME", "PHASE", "REASON", "NODES", "MEMORY", "USED", "HITS", "USED BY")


def add_to(rooms: Any) -> None:
    verbs = add_group(rooms, "cache-tier", "pools of L2")
    add_verb(verbs, "list", list_all, "all cache tiers", listing=True)
    for verb, run, text in (
        ("get", get, "one with its nodes"),
        ("contents", contents, "what it holds by namespace"),
    ):
        add_verb(verbs, verb, run, text, "name", listing=False)
    for verb, run, text in (
        ("create", create, "a new one; it starts at once"),
        ("update", update, "change the given fields"),
    ):
        parser = add_verb(verbs, verb, run, text, "name")
        parser.add_argument("-f", "--file", default="", help="JSON or YAML; - for standard input")
        example = "such as memory_bytes=1073741824"
        parser.add_argument(
            *("--set",),
            action="append",
            default=[],
            metavar="FIELD=VALUE",
            dest="fields",
            help=example,
        )
        parser.add_argument("--dry-run", action="store_true", help="say what would change")
    flushing = add_verb(
        verbs, "flush", flush, "forget a namespace, or with --all everything", "name"
    )
    what = flushing.add_mutually_exclusive_group(required=True)
    what.add_argument("--namespace", default="", help="as contents shows it")
    what.add_argument("--all", action="store_true", help="every namespace")
    add_verb(verbs, "delete", delete, "refused while an endpoint uses it", "name")


def list_all(asked: CommandContext) -> str:
    none = "There is no cache tier. Create one: emberline cache-tier create NAME"
    found = asked.client.cache_tiers.list()
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none)


def _cells(one: CacheTier) -> tuple[str, ...]:
    usage = one["usage"]
    lookups, hits = usage.get("lookups"), usage.get("hits")
    rate = f"{100 * hits / lookups:.0f} %" if lookups and hits is not None else "?"
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


def get(asked: CommandContext) -> str:
    found = asked.client.cache_tiers.get(asked.name)
    form = asked.options["output"]
    return (
        "\n".join(_format_tier(found)) if form == output.TABLE else output.format_data(found, form)
    )


def _format_tier(one: CacheTier) -> Iterator[str]:
    reason = f" ({one['reason']})" if one["reason"] else ""
    yield f"{one['name']}: {one['phase']}{reason}. {one['message']}".rstrip()
    yield (
        f"  {one['node_count']} nodes of {output.size(one['memory_bytes'])} memory and "
        f"{output.size(one['disk_bytes'])} disk, {one['copies']} copies, {one['policy']}"
    )
    if one["cluster"]:
        limit = f"{one['cpu_limit_millis']}m" if one["cpu_limit_millis"] else "no"
        memory = one["memory_limit_bytes"]
        yield (
            f"  each node requests {one['cpu_millis']}m CPU ({limit} CPU limit"
            f"{f', {output.size(memory)} memory limit' if memory else ''})"
        )
    yield f"  used by {', '.join(one['used_by']) or 'nobody'}; url {one['url'] or 'not known yet'}"
    if one["nodes"]:
        rows = [
            (str(n["name"]), str(n["state"]), str(n["url"]), str(n["restarts"]), str(n["message"]))
            for n in one["nodes"]
        ]
        yield output.table(("NODE", "STATE", "URL", "RESTARTS", "MESSAGE"), rows)


def contents(asked: CommandContext) -> str:
    found = asked.client.cache_tiers.contents(asked.name)
    form = asked.options["output"]
    return output.format_data(found, output.YAML if form == output.TABLE else form)


def _facts(asked: CommandContext) -> dict[str, Any]:
    file = commandline_input.read_document(asked.options["file"]) if asked.options["file"] else {}
    return {**file, **commandline_input.parse_facts(asked.options["fields"])}


def create(asked: CommandContext) -> str:
    dry = asked.options["dry_run"]
    made = asked.client.cache_tiers.create(asked.name, _facts(asked), dry_run=dry)
    if dry:
        return format_dry_run(made)
    return f"{asked.name} is accepted. See: emberline cache-tier get {asked.name}"


def update(asked: CommandContext) -> str:
    dry = asked.options["dry_run"]
    changed = asked.client.cache_tiers.change(asked.name, _facts(asked), dry_run=dry)
    return (
        format_dry_run(changed)
        if dry
        else f"{asked.name} is at generation {changed['generation']}."
    )


def flush(asked: CommandContext) -> str:
    dropped = asked.client.cache_tiers.flush(asked.name, asked.options["namespace"])
    return f"{dropped} values of {asked.name} are forgotten."


def delete(asked: CommandContext) -> str:
    asked.client.cache_tiers.delete(asked.name)
    return f"{asked.name} is being deleted."
