"""create, update, scale, pause, resume, rollback, delete: all end in `actions`."""

from __future__ import annotations

import argparse
from typing import Any

from endpoints import abandoning, actions
from endpoints.actions import SYSTEM
from endpoints.commandline import read
from endpoints.models import Endpoint


def add_to(verbs: Any) -> None:
    make = verbs.add_parser("create", help="a new endpoint")
    make.add_argument("name", nargs="?", default="")
    _add_spec(make)
    make.set_defaults(run=create)
    change = _named(verbs, "update", "change the given fields", update)
    _add_spec(change)
    change.add_argument("--generation", type=int, help="refuse unless it is at this generation")
    scaled = _named(verbs, "scale", "change the number of workers", scale)
    scaled.add_argument("replicas", type=int)
    _named(verbs, "pause", "stop all workers, keep the configuration", pause)
    _named(verbs, "resume", "want as many workers as before the pause", resume)
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


def _named(verbs: Any, verb: str, text: str, run: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(verb, help=text)
    parser.add_argument("name")
    parser.set_defaults(run=run)
    return parser


def _add_spec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", default="", help="JSON or YAML; - for standard input")
    parser.add_argument("--model", help="short for --set model=...")
    parser.add_argument("--replicas", type=int, help="short for --set replicas=...")
    parser.add_argument("--strategy", help="short for --set routing.strategy=...")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="fields",
        help="any field by its path, such as cache.l2.enabled=true",
    )
    parser.add_argument(
        "--worker-arg",
        action="append",
        default=[],
        metavar="ARG",
        dest="worker_args",
        help="one argument of the worker, such as --worker-arg=--max-model-len=2048",
    )


def _spec(options: dict[str, Any]) -> dict[str, Any]:
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
    file = read.document(options["file"]) if options["file"] else {}
    return read.together(file, short, read.settings(options["fields"]))


def create(options: dict[str, Any]) -> str:
    endpoint = actions.create(SYSTEM, _spec(options))
    return f"{endpoint.name} is accepted. Watch it: emberline endpoint wait {endpoint.name}"


def update(options: dict[str, Any]) -> str:
    changed = actions.patch(
        SYSTEM, options["name"], _spec(options), expected_generation=options["generation"]
    )
    return _now_at(changed)


def scale(options: dict[str, Any]) -> str:
    return _now_at(actions.scale(SYSTEM, options["name"], options["replicas"]))


def pause(options: dict[str, Any]) -> str:
    return _now_at(actions.pause(SYSTEM, options["name"]))


def resume(options: dict[str, Any]) -> str:
    return _now_at(actions.resume(SYSTEM, options["name"]))


def rollback(options: dict[str, Any]) -> str:
    return _now_at(actions.rollback(SYSTEM, options["name"], options["revision"]))


def delete(options: dict[str, Any]) -> str:
    if options["abandon"]:
        left = abandoning.abandon(SYSTEM, options["name"])
        return f"{options['name']} is forgotten. {left.message}"
    actions.delete(SYSTEM, options["name"])
    return f"{options['name']} is being deleted."


def _now_at(endpoint: Endpoint) -> str:
    replicas = endpoint.spec["replicas"]
    return f"{endpoint.name} is at generation {endpoint.generation}; {replicas} workers wanted."
