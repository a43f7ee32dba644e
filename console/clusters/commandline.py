"""`emberline cluster ...`: clusters from the command line, as the console itself.

What is refused is said in the words of form and REST. `check` asks the cluster now and its exit
code is the verdict: 0 ready, 1 rights are missing, 2 it does not answer or is not there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from console.clusters import actions, refresh, sealing, selectors, usage
from console.clusters.choices import KINDS, REACHES, Phase
from console.clusters.models import Cluster
from console.provisioners.kubernetes import rights
from console.provisioners.kubernetes.inventory import Inventory
from console.provisioners.kubernetes.rights import Granted

_CODES = {Phase.READY: 0, Phase.DEGRADED: 1, Phase.FAILED: 2}


def add_to(rooms: Any) -> None:
    verbs = rooms.add_parser("cluster", help="clusters endpoints can be placed in").add_subparsers(
        dest="verb", required=True, metavar="VERB"
    )
    shown = verbs.add_parser("list", help="every cluster with what was last seen of it")
    shown.add_argument("-o", "--output", choices=("text", "json"), default="text")
    shown.set_defaults(run=listed)
    adding = verbs.add_parser("add", help="let the console use a cluster")
    adding.add_argument("name")
    adding.add_argument("--kind", choices=KINDS, default="kubeconfig")
    adding.add_argument("--kubeconfig", metavar="FILE", help='"-" reads standard input')
    adding.add_argument("--context", help="of the kubeconfig; default: its current one")
    adding.add_argument("--namespace", help="where endpoints go which name none")
    adding.add_argument("--reach", choices=REACHES, help="what the console can connect to")
    adding.set_defaults(run=add)
    checking = verbs.add_parser("check", help="ask a cluster now what it can carry")
    checking.add_argument("name")
    checking.set_defaults(run=check)
    role = verbs.add_parser("role", help="print the Role that grants what is missing")
    role.add_argument("name")
    role.add_argument("--namespace", help="for that one, and whole, whatever is granted already")
    role.add_argument(
        "--follow", action="store_true", help="with what following its objects needs, and whole"
    )
    role.set_defaults(run=print_role)
    removing = verbs.add_parser("remove", help="forget a cluster that nothing uses")
    removing.add_argument("name")
    removing.set_defaults(run=remove)
    verbs.add_parser("rekey", help="seal every kubeconfig with the first key").set_defaults(
        run=rekey
    )


def listed(options: dict[str, Any]) -> str:
    rows = list(selectors.clusters())
    if options["output"] == "json":
        return json.dumps([_facts(row) for row in rows], indent=2, default=str)
    if not rows:
        return "There is no cluster yet. Add one with: emberline cluster add NAME --kubeconfig FILE"
    lines = [("NAME", "PHASE", "KIND", "NAMESPACE", "VERSION", "WHY")]
    lines += [
        (
            row.name,
            row.status.phase,
            row.kind,
            row.namespace,
            row.status.server_version or "-",
            row.status.message,
        )
        for row in rows
    ]
    widths = [max(len(line[place]) for line in lines) for place in range(5)] + [0]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _facts(row: Cluster) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "namespace": row.namespace,
        "reach": row.reach,
        "phase": row.status.phase,
        "reason": row.status.reason,
        "message": row.status.message,
        "server_version": row.status.server_version,
        "capabilities": sorted(row.inventory.capabilities),
        "seen_at": row.status.seen_at,
    }


def add(options: dict[str, Any]) -> str:
    data = {
        key: options[key]
        for key in ("kind", "context", "namespace", "reach")
        if options[key] is not None
    }
    if options["kubeconfig"]:
        data["kubeconfig"] = _read(options["kubeconfig"])
    made = actions.add(None, options["name"], data)
    return (
        f"Cluster {made.name} is added. See what it can carry: emberline cluster check {made.name}"
    )


def check(options: dict[str, Any]) -> str:
    row = _row(options["name"])
    seen = refresh.look(row, usage.followed(row.name))
    lines = [f"{row.name}: {seen.phase} ({seen.reason})"]
    lines += [seen.message] if seen.message else []
    if "inventory" in seen.facts:
        lines += _told(Inventory.of_json(seen.facts["inventory"]))
        granted = Granted.of_json(seen.facts["rights"])
        for one in granted.missing:
            what = "may not" if not one.optional else "may not (optional)"
            where = f" in {one.namespace}" if one.namespace else ""
            lines.append(f"  {what} {', '.join(one.verbs)} {one.title}{where}: {one.lost}")
    code = _CODES[seen.phase]
    if code:
        raise CommandError("\n".join(lines), returncode=code)
    return "\n".join(lines)


def _told(found: Inventory) -> list[str]:
    lines = [f"  Kubernetes {found.server_version}"]
    for one in found.findings:
        mark = "?" if one.unsure else "+" if one.present else "-"
        lines.append(f"  {mark} {one.label}: {one.detail or f'{one.why_not} {one.remedy}'}")
    for pool in found.pools:
        free = "unknown" if pool.gpus_free is None else str(pool.gpus_free)
        gpus = f", {free} of {pool.gpus} x {pool.gpu} free" if pool.gpus else ""
        lines.append(f"  {pool.ready}/{pool.nodes} x {pool.instance_type or 'unnamed'}{gpus}")
    return lines


def print_role(options: dict[str, Any]) -> str:
    row = _row(options["name"])
    if row.status.seen_at is None:
        raise CommandError(f"{row.name} has not answered yet: emberline cluster check {row.name}")
    if options["follow"] or options["namespace"]:
        parts = (rights.FOLLOW,) if options["follow"] else ()
        asked = rights.wanted(row.inventory, parts)
        return rights.manifest(asked, row.granted.who, options["namespace"] or row.namespace)
    return row.granted.manifest or f"# {row.name} grants all that is needed."


def remove(options: dict[str, Any]) -> str:
    actions.remove(None, options["name"])
    return f"Cluster {options['name']} is forgotten, with its credentials."


def rekey(_options: dict[str, Any]) -> str:
    try:
        done = actions.rekey(None)
    except sealing.Unreadable as error:
        raise CommandError(str(error)) from None
    return f"Sealed anew: {', '.join(done)}." if done else "All are sealed with the first key."


def _row(name: str) -> Cluster:
    row = selectors.get(name)
    if row is None:
        known = ", ".join(selectors.names()) or "none yet"
        raise CommandError(f"There is no cluster {name}. There are: {known}.", returncode=2)
    return row


def _read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} cannot be read: {error}.") from None
