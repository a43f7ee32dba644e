"""`endpoint create | update | scale | pause | resume | move | rollback | delete`, and `drift | heal
| adopt`: fields changed by others in the cluster, and both responses.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from console.client.errors import EmberlineError
from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.endpoint import wait
from console.commandline.endpoint.wait import DELETED
from console.commandline.input import confirm, merge, parse_settings, read_document
from console.commandline.verbs import OUTPUT_NAMES, Call, Table, Verb, Verbs


def _spec(context: CommandContext) -> dict[str, Any]:
    options = context.options
    short = context.given("model", "replicas")
    if options["strategy"] is not None:
        short["routing"] = {"strategy": options["strategy"]}
    short |= {key: options[key] for key in ("name", "worker_args") if options[key]}
    file = read_document(options["file"]) if options["file"] else {}
    spec = merge(file, short, parse_settings(options["fields"]))
    note = {"note": options["note"]} if options["note"] else {}
    return {**spec, **context.given("team"), **note}


def create(context: CommandContext) -> str:
    dry = context.options["dry_run"]
    spec = _spec(context)
    if "/" in str(spec.get("model", "")) and spec.get("engine") != "simulated":
        with suppress(EmberlineError):  # the console rejects a model that is known to be missing
            context.client.post("models", "check", data={"name": spec["model"]})
    made = context.client.post("endpoints", data=spec, once=True, **_dry_run(context))
    if dry:
        return _dry_run_text(context, made)
    name = made["name"]
    follow = f" Follow the rollout: emberline endpoint wait {name}"
    return _done(context, made, f"{name} created.{'' if context.options['wait'] else follow}")


def update(context: CommandContext) -> str:
    changed = context.client.patch(
        "endpoints",
        context.name,
        data=_spec(context),
        generation=context.options["generation"],
        **_dry_run(context),
    )
    return _format_change(context, changed)


def _run(context: CommandContext, action: str, **data: Any) -> str:
    """Run a subresource of the endpoint, such as `scale`."""
    return _format_change(context, _post(context, action, **data))


def _post(context: CommandContext, action: str, **data: Any) -> Any:
    path = ("endpoints", context.name, action)
    return context.client.post(*path, data=data or None, **_dry_run(context))


def _dry_run(context: CommandContext) -> dict[str, Any]:
    return {"dry_run": True} if context.options["dry_run"] else {}


def move(context: CommandContext) -> str:
    team = context.options["team"]
    changed = _post(context, "move", team=team)
    if context.options["dry_run"]:
        return _dry_run_text(context, changed)
    return _done(
        context, changed, f"{context.name} moved to {f'team {team}' if team else 'no team'}."
    )


def delete(context: CommandContext) -> str:
    options = context.options
    if not options["dry_run"]:
        context.client.get("endpoints", context.name)  # an unknown name needs no confirmation
        stops = "stops its workers and router and deletes its keys, events and revisions"
        leaves = "removes it from the console and leaves its cluster objects in place"
        what = leaves if options["abandon"] else stops
        confirm(context, context.name, f"Deleting endpoint {context.name} {what}.")
    abandon = {"abandon": True} if options["abandon"] else {}
    answer = context.client.delete("endpoints", context.name, **abandon, **_dry_run(context))
    if options["dry_run"]:
        return _dry_run_text(context, answer)
    if options["abandon"]:
        return f"{context.name} is removed from the console. {answer['message']}"
    text = f"{context.name} is being deleted."
    if not options["wait"]:
        return _format_result(context, answer, text)
    context.report(text)
    return wait.wait_until_phase(context, context.name, DELETED)


def _format_change(context: CommandContext, endpoint: Any) -> str:
    if context.options["dry_run"]:
        return _dry_run_text(context, endpoint)
    text = (
        f"{endpoint['name']} is at generation {endpoint['generation']}, "
        f"target {output.count(endpoint['replicas'], 'worker')}."
    )
    return _done(context, endpoint, text)


def _done(context: CommandContext, endpoint: Any, text: str) -> str:
    result = wait.wait_after_change(context, endpoint, text)
    if context.options["wait"] and context.options["output"] != output.TABLE:
        endpoint = context.client.get("endpoints", endpoint["name"])
    return _format_result(context, endpoint, result)


def _format_result(context: CommandContext, endpoint: Any, text: str) -> str:
    form = context.options["output"]
    if form == output.NAME:
        return str(endpoint["name"])
    return text if form == output.TABLE else output.format_data(endpoint, form)


def _dry_run_text(context: CommandContext, answer: Any) -> str:
    form = context.options["output"]
    if form in (output.JSON, output.YAML):
        return output.format_data(answer, form)
    return format_dry_run(answer)


def format_dry_run(answer: Any) -> str:
    changes = (answer or {}).get("changes") or []
    head = "Dry run: nothing was changed."
    if not changes:
        return f"{head} The request has no effect."
    return "\n".join([f"{head} Planned changes:", *(change(entry) for entry in changes)])


def change(one: dict[str, Any]) -> str:
    before, after = output.truncate(one.get("before")), output.truncate(one.get("after"))
    effect = f" ({one['effect']})" if one.get("effect") else ""
    return f"  {one['field']}: {before} -> {after}{effect}"


def _drift(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["key"],
        output.truncate(row["wanted"]),
        output.truncate(row["found"]),
        row["manager"] or "unknown",
        output.format_epoch(row["since"]) if row["since"] else "",
        row["workload"],
    )


_DRIFT = Table(
    ("KEY", "DESIRED", "ACTUAL", "CHANGED BY", "SINCE", "WORKLOAD"),
    _drift,
    "No drift: the cluster objects of {name} match its spec.",
    names=False,
)


def heal(context: CommandContext) -> str:
    workload = context.options["workload"]
    context.client.post(
        "endpoints", context.name, "drift", "heal", data={"workload": workload} if workload else {}
    )
    return (
        f"Reverting {workload or f'{context.name}-worker'} to its spec. "
        f"Check: emberline endpoint drift {context.name}"
    )


def add_to(verbs: Verbs) -> None:
    verb = verbs.verb("create", "create an endpoint", call=create, form=OUTPUT_NAMES)
    verb.add("name", nargs="?", default="")
    _add_spec(verb)
    _add_ends(verb)
    verb = _change_verb(verbs, "update", "change the given fields", update)
    _add_spec(verb)
    verb.add("--generation", type=int, help="fail unless the endpoint is at this generation")
    verb = _change_verb(
        verbs,
        "scale",
        "change the number of workers",
        lambda context: _run(context, "scale", replicas=context.options["replicas"]),
    )
    verb.add("replicas", type=int)
    text = "stop all workers and keep the configuration"
    _change_verb(verbs, "pause", text, lambda context: _run(context, "pause"))
    text = "start the workers stopped by pause"
    _change_verb(verbs, "resume", text, lambda context: _run(context, "resume"))
    verb = _change_verb(verbs, "move", "assign to another team, without a restart", move)
    where = verb.one_of(required=True)
    where.add_argument("team", nargs="?", default=None)
    where.add_argument("--nobody", action="store_true", help="assign to no team")
    verb = _change_verb(
        verbs,
        "rollback",
        "return to the spec of a revision",
        lambda context: _run(context, "rollback", revision=context.options["revision"]),
    )
    verb.add("revision", type=int)
    verb = _change_verb(verbs, "delete", "delete an endpoint with its workers and router", delete)
    verb.ask_first()
    verb.add(
        "--abandon",
        action="store_true",
        help="for a permanently lost cluster: remove the endpoint from the console only. Its "
        "objects carry the label emberline.dev/owner=endpoint.NAME. Rejected while the cluster "
        "responds",
    )
    text, call = "list fields changed by others in the cluster", "GET endpoints/{name}/drift/"
    verbs.verb("drift", text, "name", call=call, show=_DRIFT)
    verb = verbs.verb("heal", "revert fields changed by others", "name", call=heal)
    verb.add("--workload", default="", help="workload to revert (the workers)")
    text = "{key} keeps its current value. Check: emberline endpoint drift {name}"
    call = "POST endpoints/{name}/drift/adopt/"
    verb = verbs.verb("adopt", "keep a field changed by others", "name", call=call, show=text)
    verb.add("key", help="key in the output of drift")


def _change_verb(verbs: Verbs, name: str, text: str, call: Call) -> Verb:
    verb = verbs.verb(name, text, "name", call=call, form=OUTPUT_NAMES)
    _add_ends(verb)
    return verb


def _add_ends(verb: Verb) -> None:
    verb.add("--dry-run", action="store_true", help="show the changes without applying them")
    wait.add_wait(verb)
    verb.output()


def _add_spec(verb: Verb) -> None:
    verb.spec("spec field by path, for example cache.l2.enabled=true")
    verb.add("--model", help="short for --set model=...")
    verb.add("--replicas", type=int, help="short for --set replicas=...")
    verb.add("--strategy", help="short for --set routing.strategy=...")
    verb.add("--team", help="owning team (your team, if you are in one)")
    verb.add("--note", default="", help="reason, for the revision and the audit log")
    verb.add(
        "--worker-arg",
        action="append",
        default=[],
        metavar="ARG",
        dest="worker_args",
        help="worker argument, repeatable: --worker-arg=--max-model-len=2048",
    )
