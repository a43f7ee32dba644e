"""`emberline cache-tier ...`: manage, inspect and flush L2 cache tiers."""

from __future__ import annotations

from collections.abc import Iterator

from console.client.documents import CacheTier
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.endpoint.changes import format_dry_run
from console.commandline.input import read_fields
from console.commandline.verbs import Table, Verb, Verbs


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


def create(asked: CommandContext) -> str:
    dry = asked.options["dry_run"]
    made = asked.client.cache_tiers.create(asked.name, read_fields(asked), dry_run=dry)
    if dry:
        return format_dry_run(made)
    return f"{asked.name} is accepted. See: emberline cache-tier get {asked.name}"


def update(asked: CommandContext) -> str:
    dry = asked.options["dry_run"]
    changed = asked.client.cache_tiers.change(asked.name, read_fields(asked), dry_run=dry)
    if dry:
        return format_dry_run(changed)
    return f"{asked.name} is at generation {changed['generation']}."


def flush(asked: CommandContext) -> str:
    dropped = asked.client.cache_tiers.flush(asked.name, asked.options["namespace"])
    return f"{dropped} values of {asked.name} are forgotten."


def _add_fields(verb: Verb) -> None:
    verb.spec("such as memory_bytes=1073741824")
    verb.add("--dry-run", action="store_true", help="say what would change")


_TIERS = Table(
    ("NAME", "PHASE", "REASON", "NODES", "MEMORY", "USED", "HITS", "USED BY"),
    _cells,
    "There is no cache tier. Create one: emberline cache-tier create NAME",
)


def add_cache_tiers(rooms: Verbs) -> None:
    verbs = rooms.group("cache-tier", "pools of L2", client="cache_tiers")
    verbs.verb("list", "all cache tiers", show=_TIERS)
    verbs.verb("get", "one with its nodes", "name", show=_format_tier)
    verbs.verb("contents", "what it holds by namespace", "name", show=output.format_yaml)
    verb = verbs.verb("create", "a new one; it starts at once", "name", call=create)
    _add_fields(verb)
    verb = verbs.verb("update", "change the given fields", "name", call=update)
    _add_fields(verb)
    verb = verbs.verb("flush", "forget a namespace, or with --all everything", "name", call=flush)
    either = verb.one_of(required=True)
    either.add_argument("--namespace", default="", help="as contents shows it")
    either.add_argument("--all", action="store_true", help="every namespace")
    verbs.verb(
        "delete", "refused while an endpoint uses it", "name", show="{name} is being deleted."
    )
