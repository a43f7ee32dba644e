"""`emberline cluster ...`: clusters for endpoints.

`check` queries the cluster; exit codes: 0 ready, 1 missing rights, 2 unreachable or not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.client import NotFound
from console.client.documents import Cluster
from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import (
    NOT_FOUND,
    USAGE,
    CommandContext,
    CommandError,
    CommandResult,
)
from console.commandline.verbs import add_group, add_verb

KINDS = ("in-cluster", "kubeconfig", "context")
REACHES = ("pods", "api")
_VERDICTS = {"Ready": 0, "Degraded": 1}
_NO_ANSWER = 2
_HEAD = ("NAME", "PHASE", "KIND", "NAMESPACE", "VERSION", "WHY")
_FACTS = ("kind", "context", "namespace", "reach")


def add_to(rooms: Any) -> None:
    verbs = add_group(rooms, "cluster", "clusters endpoints can be placed in")
    add_verb(verbs, "list", list_all, "every cluster with what was last seen of it", listing=True)
    add_verb(verbs, "get", get, "what a cluster can carry, as last seen", "name", listing=False)
    adding = add_verb(verbs, "add", add, "let the console use a cluster", "name")
    adding.add_argument("--kind", choices=KINDS, default="kubeconfig", help="how it is reached")
    _add_facts(adding)
    changing = verbs.add_parser("update", help="another kubeconfig, context, namespace or reach")
    changing.add_argument("name")
    _add_facts(changing)
    changing.set_defaults(run=update, kind=None)
    add_verb(verbs, "check", check, "ask a cluster now what it can carry", "name", listing=False)
    role = add_verb(verbs, "role", print_role, "print the Role that grants what is missing", "name")
    role.add_argument(
        "--namespace", default="", help="for that one, and whole, whatever is granted already"
    )
    role.add_argument(
        "--follow", action="store_true", help="with what following its objects needs, and whole"
    )
    add_verb(verbs, "remove", remove, "forget a cluster that nothing uses", "name")
    add_verb(verbs, "rekey", rekey, "the same as `emberline rekey`")


def add_rekey(rooms: Any) -> None:
    """Add `rekey` under both names: kubeconfigs were the first encrypted secrets."""
    text = "seal every kept secret anew with the first key (on the console's own machine)"
    add_verb(rooms, "rekey", rekey, text)


def _add_facts(parser: Any) -> None:
    parser.add_argument("--kubeconfig", metavar="FILE", help='"-" reads standard input')
    parser.add_argument("--context", help="of the kubeconfig; default: its current one")
    parser.add_argument("--namespace", help="where endpoints go which name none")
    parser.add_argument("--reach", choices=REACHES, help="what the console can connect to")


def list_all(asked: CommandContext) -> str:
    none = "There is no cluster yet. Add one with: emberline cluster add NAME --kubeconfig FILE"
    found = asked.client.clusters.list()
    return output.rows(found, asked.options["output"], _HEAD, _cells, none=none)


def _cells(one: Cluster) -> tuple[str, ...]:
    version = one["server_version"] or "-"
    return one["name"], one["phase"], one["kind"], one["namespace"], version, one["message"]


def get(asked: CommandContext) -> str:
    found = _get_or_fail(asked)
    form = asked.options["output"]
    return (
        "\n".join(_format_cluster(found))
        if form == output.TABLE
        else output.format_data(found, form)
    )


def add(asked: CommandContext) -> str:
    made = asked.client.clusters.add(asked.name, _facts(asked))
    name = made["name"]
    return f"Cluster {name} is added. See what it can carry: emberline cluster check {name}"


def update(asked: CommandContext) -> str:
    changed = asked.client.clusters.change(asked.name, _facts(asked))
    return f"Cluster {changed['name']} is changed. What runs there goes on."


def _facts(asked: CommandContext) -> dict[str, Any]:
    options = asked.options
    facts = {key: options[key] for key in _FACTS if options[key] is not None}
    if options["kubeconfig"]:
        facts["kubeconfig"] = commandline_input.read_text(options["kubeconfig"])
    return facts


def check(asked: CommandContext) -> CommandResult:
    try:
        found = asked.client.clusters.check(asked.name)
    except NotFound:
        raise CommandError(_not_found_text(asked), _NO_ANSWER) from None
    form = asked.options["output"]
    text = (
        "\n".join(_format_cluster(found))
        if form == output.TABLE
        else output.format_data(found, form)
    )
    return CommandResult(text, _VERDICTS.get(found["phase"], _NO_ANSWER))


def _format_cluster(found: Cluster) -> Iterator[str]:
    yield f"{found['name']}: {found['phase']} ({found['reason']})"
    if found["message"]:
        yield found["message"]
    if not found["seen_at"]:
        return
    seen = f"{output.format_time(found['seen_at'])} UTC, {output.format_age(found['seen_at'])} ago"
    yield f"  seen {seen}" if found["phase"] in _VERDICTS else f"It answered last at {seen}:"
    yield f"  Kubernetes {found['server_version']}"
    for one in found["capabilities"]:
        mark = "?" if one["unsure"] else "+" if one["present"] else "-"
        told = one["detail"] or f"{one['why_not']} {one['remedy']}"
        yield f"  {mark} {one['title']}: {told}"
    for pool in found["node_pools"]:
        free = "unknown" if pool["gpus_free"] is None else str(pool["gpus_free"])
        gpus = f", {free} of {pool['gpus']} x {pool['gpu']} free" if pool["gpus"] else ""
        yield f"  {pool['ready']}/{pool['nodes']} x {pool['instance_type'] or 'unnamed'}{gpus}"
    for right in found["rights"].get("missing", ()):
        what = "may not (optional)" if right["optional"] else "may not"
        where = f" in {right['namespace']}" if right["namespace"] else ""
        group = f".{right['group']}" if right["group"] else ""
        title = f"{right['resource']}{group}"
        yield f"  {what} {', '.join(right['verbs'])} {title}{where}: {right['lost']}"


def print_role(asked: CommandContext) -> str:
    options = asked.options
    try:
        return asked.client.clusters.role(
            asked.name, namespace=options["namespace"], follow=options["follow"]
        ).rstrip()
    except NotFound:
        raise CommandError(_not_found_text(asked), NOT_FOUND) from None


def remove(asked: CommandContext) -> str:
    _get_or_fail(asked)
    asked.client.clusters.remove(asked.name)
    return f"Cluster {asked.name} is forgotten, with its credentials."


def rekey(asked: CommandContext) -> str:
    if asked.here is None:
        raise CommandError("The keys are on the console's own machine: run it there.", USAGE)
    return asked.here.rekey()


def _get_or_fail(asked: CommandContext) -> Cluster:
    try:
        return asked.client.clusters.get(asked.name)
    except NotFound:
        raise CommandError(_not_found_text(asked), NOT_FOUND) from None


def _not_found_text(asked: CommandContext) -> str:
    known = ", ".join(one["name"] for one in asked.client.clusters.list()) or "none yet"
    return f"There is no cluster {asked.name}. There are: {known}."
