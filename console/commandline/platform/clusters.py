"""`emberline cluster ...` and `follow ...`: clusters for endpoints, and the namespaces whose
InferenceEndpointConfig objects define endpoints.

`cluster check` queries the cluster; exit codes: 0 ready, 1 missing rights, 2 unreachable or not
found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.commandline import output
from console.commandline.context import (
    NOT_FOUND,
    USAGE,
    CommandContext,
    CommandError,
    CommandResult,
)
from console.commandline.input import known_name
from console.commandline.verbs import Table, Verb, Verbs

_VERDICTS = {"Ready": 0, "Degraded": 1}
_NO_ANSWER = 2
_KNOWN = ("cluster", "clusters")


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    version = one["server_version"] or "-"
    return one["name"], one["phase"], one["kind"], one["namespace"], version, one["message"]


def check(context: CommandContext) -> CommandResult:
    with known_name(context, "cluster", "clusters", _NO_ANSWER):
        checked = context.client.post("clusters", context.name, "check", wait=True)
    return CommandResult(checked, _VERDICTS.get(checked["phase"], _NO_ANSWER))


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"{found['name']}: {found['phase']} ({found['reason']})"
    if found["message"]:
        yield found["message"]
    if not found["seen_at"]:
        return
    seen_at = (
        f"{output.format_time(found['seen_at'])} UTC, {output.format_age(found['seen_at'])} ago"
    )
    yield f"  checked {seen_at}" if found["phase"] in _VERDICTS else f"Last response {seen_at}:"
    yield f"  Kubernetes {found['server_version']}"
    for capability in found["capabilities"]:
        mark = "?" if capability["unsure"] else "+" if capability["present"] else "-"
        text = capability["detail"] or f"{capability['why_not']} {capability['remedy']}"
        yield f"  {mark} {capability['title']}: {text}"
    for pool in found["node_pools"]:
        free = "unknown" if pool["gpus_free"] is None else str(pool["gpus_free"])
        gpus = f", {free} of {pool['gpus']} x {pool['gpu']} free" if pool["gpus"] else ""
        yield f"  {pool['ready']}/{pool['nodes']} x {pool['instance_type'] or 'unnamed'}{gpus}"
    for right in found["rights"].get("missing", ()):
        what = "missing right (optional):" if right["optional"] else "missing right:"
        where = f" in {right['namespace']}" if right["namespace"] else ""
        group = f".{right['group']}" if right["group"] else ""
        title = f"{right['resource']}{group}"
        yield f"  {what} {', '.join(right['verbs'])} {title}{where}: {right['lost']}"


def print_role(context: CommandContext) -> str:
    query = {name: context.options[name] or None for name in ("namespace", "follow")}
    return context.client.text("clusters", context.name, "role", **query).rstrip()


def rekey(context: CommandContext) -> str:
    if context.here is None:
        raise CommandError("rekey runs on the console's machine only.", USAGE)
    return context.here.rekey()


def _add_facts(verb: Verb) -> None:
    verb.file("--kubeconfig", "kubeconfig", "kubeconfig file")
    verb.add("--context", help="context of the kubeconfig (the current one)")
    verb.add("--namespace", help="default namespace for endpoints")
    verb.add(
        "--reach",
        choices=("pods", "api"),
        help="network reach: pods directly, or through the API server",
    )


_CLUSTERS = Table(
    ("NAME", "PHASE", "KIND", "NAMESPACE", "VERSION", "MESSAGE"),
    _cells,
    "No clusters. Add one: emberline cluster add NAME --kubeconfig FILE",
)


def add_clusters(rooms: Verbs) -> None:
    verbs = rooms.group("cluster", "manage Kubernetes clusters")
    text = "list clusters with their last check"
    verbs.verb("list", text, call="GET clusters/", show=_CLUSTERS)
    path, text = "clusters/{name}/", "show a cluster's capabilities from the last check"
    verbs.verb("get", text, "name", call=f"GET {path}", show=_lines, known=_KNOWN)
    verb = verbs.verb(
        "add",
        "add a cluster",
        "name",
        call="CREATE clusters/",
        form={},
        show="Cluster {name} added. Check its capabilities: emberline cluster check {name}",
    )
    verb.add(
        "--kind",
        choices=("in-cluster", "kubeconfig", "context"),
        default="kubeconfig",
        help="connection type",
    )
    _add_facts(verb)
    verb = verbs.verb(
        "update",
        "change kubeconfig, context, namespace or reach",
        "name",
        call=f"PATCH {path}",
        known=_KNOWN,
        form={},
        show="Cluster {name} changed. Running endpoints are not affected.",
    )
    _add_facts(verb)
    verbs.verb("check", "check a cluster's capabilities now", "name", call=check, show=_lines)
    text = "print a Role with the missing rights"
    verb = verbs.verb("role", text, "name", call=print_role, known=_KNOWN)
    verb.add("--namespace", default="", help="print the full Role for this namespace")
    verb.add(
        "--follow", action="store_true", help="print the full Role including rights for follow"
    )
    verb = verbs.verb(
        "remove",
        "remove an unused cluster",
        "name",
        call=f"DELETE {path}",
        known=_KNOWN,
        show="Cluster {name} and its credentials removed.",
    )
    verb.ask_first("Removing cluster {name} deletes its credentials from the console.")
    verbs.verb("rekey", "same as `emberline rekey`", call=rekey)


def add_rekey(rooms: Verbs) -> None:
    """Add `rekey` under both names: kubeconfigs were the first encrypted secrets."""
    rooms.verb(
        "rekey",
        "re-encrypt all stored secrets with the first key (on the console's machine)",
        call=rekey,
    )


def _follow_cells(row: dict[str, Any]) -> tuple[str, ...]:
    why = f"{row['reason']} {row['message']}".strip()
    return row["cluster"], row["namespace"], row["phase"], str(row["objects"]), why


def unfollow(context: CommandContext) -> None:
    cluster, namespace = context.options["cluster"], context.options["namespace"]
    for row in context.client.pages("follows"):
        if (row["cluster"], row["namespace"]) == (cluster, namespace):
            context.client.delete("follows", row["id"])
            return
    text = f"{cluster}/{namespace} is not followed. List followed namespaces: emberline follow list"
    raise CommandError(text, NOT_FOUND)


_FOLLOWS = Table(
    ("CLUSTER", "NAMESPACE", "PHASE", "OBJECTS", "MESSAGE"),
    _follow_cells,
    "No followed namespaces. Follow one: emberline follow add CLUSTER NAMESPACE",
    names=False,
)


def add_follows(rooms: Verbs) -> None:
    text = "create endpoints from InferenceEndpointConfig objects of a namespace"
    verbs = rooms.group("follow", text)
    verbs.verb("list", "list followed namespaces", call="GET follows/", show=_FOLLOWS)
    verb = verbs.verb(
        "add",
        "install the CRD and follow a namespace",
        "cluster",
        "namespace",
        call="CREATE follows/",
        show="Following {cluster}/{namespace}. Check: emberline follow list",
    )
    verb.add("--foreign", action="store_true", help="also if the CRD was installed by others")
    verb = verbs.verb(
        "remove",
        "stop following; endpoints are kept",
        "cluster",
        "namespace",
        call=unfollow,
        show="Stopped following {cluster}/{namespace}. Its endpoints are kept and managed here.",
    )
    verb.ask_first("Removing {cluster}/{namespace} ends the sync of its manifests to endpoints.")
