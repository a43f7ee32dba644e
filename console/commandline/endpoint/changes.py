"""`endpoint create | update | scale | pause | resume | rollback | delete`."""

from __future__ import annotations

import argparse
from typing import Any

from console.commandline import input as commandline_input
from console.commandline import output
from console.commandline.context import CommandContext, Run
from console.commandline.endpoint import wait
from console.commandline.endpoint.wait import DELETED
from console.commandline.verbs import add_verb


def add_to(verbs: Any) -> None:
    make = add_verb(verbs, "create", create, "a new endpoint")
    make.add_argument("name", nargs="?", default="")
    _add_spec(make)
    _add_ends(make)
    change = _named(verbs, "update", "change the given fields", update)
    _add_spec(change)
    change.add_argument("--generation", type=int, help="refuse unless it is at this generation")
    scaled = _named(verbs, "scale", "change the number of workers", scale)
    scaled.add_argument("replicas", type=int)
    _named(verbs, "pause", "stop all workers, keep the configuration", pause)
    _named(verbs, "resume", "want as many workers as before the pause", resume)
    moved = _named(verbs, "move", "to another team; nothing of it restarts", move)
    where = moved.add_mutually_exclusive_group(required=True)
    where.add_argument("team", nargs="?", default=None)
    where.add_argument("--nobody", action="store_true", help="of no team")
    back = _named(verbs, "rollback", "want again what a revision wanted", rollback)
    back.add_argument("revision", type=int)
    end = _named(verbs, "delete", "stop everything of it and forget it", delete)
    end.add_argument(
        "--abandon",
        action="store_true",
        help="its cluster is gone for good: forget it and remove nothing there. Should the cluster "
        "come back, its pods go on; they carry the label emberline.dev/owner=endpoint.NAME. "
        "Refused while the cluster answers",
    )


def _named(verbs: Any, verb: str, text: str, run: Run) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(verb, help=text)
    parser.add_argument("name")
    _add_ends(parser)
    parser.set_defaults(run=run)
    return parser


def _add_ends(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="say what would change, no more")
    wait.add_wait(parser)
    output.add_output(parser, names=True)


def add_spec_file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", default="", help="JSON or YAML; - for standard input")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="fields",
        help="any field by its path, such as cache.l2.enabled=true",
    )


def _add_spec(parser: argparse.ArgumentParser) -> None:
    add_spec_file(parser)
    parser.add_argument("--model", help="short for --set model=...")
    parser.add_argument("--replicas", type=int, help="short for --set replicas=...")
    parser.add_argument("--strategy", help="short for --set routing.strategy=...")
    parser.add_argument("--team", help="whose it is to be; yours if you are in one alone")
    parser.add_argument("--note", default="", help="reason, for the revision and the audit log")
    parser.add_argument(
        "--worker-arg",
        action="append",
        default=[],
        metavar="ARG",
        dest="worker_args",
        help="one argument of the worker, such as --worker-arg=--max-model-len=2048",
    )


def _spec(asked: CommandContext) -> dict[str, Any]:
    options = asked.options
    short: dict[str, Any] = {}
    if options["name"]:
        short["name"] = options["name"]
    if options["model"] is not None:
        short["model"] = options["model"]
    if options["replicas"] is not None:
        short["replicas"] = options["replicas"]
    if options["strategy"] is not None:
        short["routing"] = {"strategy": options["strategy"]}
    if options["worker_args"]:
        short["worker_args"] = options["worker_args"]
    file = commandline_input.read_document(options["file"]) if options["file"] else {}
    spec = commandline_input.merge(file, short, commandline_input.parse_settings(options["fields"]))
    if options["team"] is not None:
        spec["team"] = options["team"]
    if options["note"]:
        spec["note"] = options["note"]
    return spec


def create(asked: CommandContext) -> str:
    dry = asked.options["dry_run"]
    made = asked.client.endpoints.create(_spec(asked), dry_run=dry)
    if dry:
        return _dry_run_text(asked, made)
    name = made["name"]
    text = f"{name} is accepted. Watch it: emberline endpoint wait {name}"
    return _done(asked, made, text)


def update(asked: CommandContext) -> str:
    changed = asked.client.endpoints.update(
        asked.name,
        _spec(asked),
        generation=asked.options["generation"],
        dry_run=asked.options["dry_run"],
    )
    return _format_change(asked, changed)


def scale(asked: CommandContext) -> str:
    endpoints, dry = asked.client.endpoints, asked.options["dry_run"]
    return _format_change(
        asked, endpoints.scale(asked.name, asked.options["replicas"], dry_run=dry)
    )


def pause(asked: CommandContext) -> str:
    dry = asked.options["dry_run"]
    return _format_change(asked, asked.client.endpoints.pause(asked.name, dry_run=dry))


def resume(asked: CommandContext) -> str:
    dry = asked.options["dry_run"]
    return _format_change(asked, asked.client.endpoints.resume(asked.name, dry_run=dry))


def move(asked: CommandContext) -> str:
    team, dry = asked.options["team"], asked.options["dry_run"]
    changed = asked.client.endpoints.move(asked.name, team, dry_run=dry)
    if dry:
        return _dry_run_text(asked, changed)
    return _done(asked, changed, f"{asked.name} is {f'team {team}' if team else 'nobody'}'s now.")


def rollback(asked: CommandContext) -> str:
    endpoints, dry = asked.client.endpoints, asked.options["dry_run"]
    return _format_change(
        asked, endpoints.rollback(asked.name, asked.options["revision"], dry_run=dry)
    )


def delete(asked: CommandContext) -> str:
    options = asked.options
    answer = asked.client.endpoints.delete(
        asked.name, abandon=options["abandon"], dry_run=options["dry_run"]
    )
    if options["dry_run"]:
        return _dry_run_text(asked, answer.body)
    if options["abandon"]:
        return f"{asked.name} is forgotten. {answer.body['message']}"
    text = f"{asked.name} is being deleted."
    if not options["wait"]:
        return _format_result(asked, answer.body, text)
    asked.say(text)
    return wait.wait_until_phase(asked, asked.name, DELETED)


def _format_change(asked: CommandContext, endpoint: Any) -> str:
    if asked.options["dry_run"]:
        return _dry_run_text(asked, endpoint)
    text = (
        f"{endpoint['name']} is at generation {endpoint['generation']}; "
        f"{endpoint['replicas']} workers wanted."
    )
    return _done(asked, endpoint, text)


def _done(asked: CommandContext, endpoint: Any, text: str) -> str:
    said = wait.wait_after_change(asked, endpoint, text)
    if asked.options["wait"] and asked.options["output"] != output.TABLE:
        endpoint = asked.client.endpoints.get(endpoint["name"])
    return _format_result(asked, endpoint, said)


def _format_result(asked: CommandContext, endpoint: Any, text: str) -> str:
    form = asked.options["output"]
    if form == output.NAME:
        return str(endpoint["name"])
    return text if form == output.TABLE else output.format_data(endpoint, form)


def _dry_run_text(asked: CommandContext, answer: Any) -> str:
    form = asked.options["output"]
    if form in (output.JSON, output.YAML):
        return output.format_data(answer, form)
    return format_dry_run(answer)


def format_dry_run(answer: Any) -> str:
    changes = (answer or {}).get("changes") or []
    head = "Nothing was changed (dry run)."
    if not changes:
        return f"{head} Nothing would be."
    return "\n".join([f"{head} It would be:", *(change(one) for one in changes)])


def change(one: dict[str, Any]) -> str:
    before, after = output.truncate(one.get("before")), output.truncate(one.get("after"))
    effect = f" ({one['effect']})" if one.get("effect") else ""
    return f"  {one['field']}: {before} -> {after}{effect}"
