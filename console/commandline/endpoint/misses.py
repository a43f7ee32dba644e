"""CLI verb of computed prompt tokens by cause."""

from __future__ import annotations

from typing import Any

from console.commandline import output
from console.commandline.context import CommandContext
from console.commandline.verbs import Verbs


def _format_misses(found: dict[str, Any]) -> str:
    if "groups" in found:
        return _format_groups(found)
    computed, prompt = found["computed_tokens"], found["prompt_tokens"]
    requests, since = output.count(found["requests"], "request"), output.format_time(found["since"])
    head = f"{computed:,} of {prompt:,} prompt tokens of {requests} computed since {since}"
    rows = [
        (
            cause["code"],
            f"{cause['tokens']:,}",
            f"{cause['share']:.1%}",
            "-" if cause["seconds"] is None else f"{cause['seconds']:,.1f} s",
            "-" if cause["usd"] is None else f"{cause['usd']:,.4f}",
            cause["remedy"],
        )
        for cause in found["causes"]
    ]
    parts = [head]
    if rows:
        parts += ["", output.table(("CAUSE", "TOKENS", "SHARE", "PREFILL", "USD", "REMEDY"), rows)]
    examples = [
        (
            example["decision"],
            f"{example['tokens']:,}",
            "" if example["age_s"] is None else f"{example['age_s']:,.0f} s",
            "" if example["changed_offset"] is None else str(example["changed_offset"]),
        )
        for example in found["examples"]
    ]
    if examples:
        parts += ["", output.table(("DECISION", "TOKENS", "LAST USED", "CHANGED AT"), examples)]
    layouts = [
        (
            template["template"],
            template["cause"],
            f"{template['changed_offset']} {template['changed_part']}".strip(),
            f"{template['stable_tokens']:,}",
            f"{template['requests']:,}",
            f"{template['tokens']:,}",
            f"{template['saved_tokens']:,}",
            "-" if template["saved_usd"] is None else f"{template['saved_usd']:,.4f}",
        )
        for template in found["templates"]
    ]
    if layouts:
        head_row = ("TEMPLATE", "CHANGE", "AT TOKEN", "STABLE", "REQUESTS", "TOKENS", "SAVING")
        parts += ["", output.table((*head_row, "SAVING USD"), layouts)]
    notes = [found["note"], found["price_missing"]]
    if found["unreported_requests"]:
        answers = output.count(found["unreported_requests"], "answer")
        notes.append(f"{answers} without cached tokens left out (--enable-prompt-tokens-details).")
    return "\n".join([*parts, *filter(None, notes)])


def _format_groups(found: dict[str, Any]) -> str:
    rows = {
        title: [
            (
                group["name"],
                f"{group['tokens']:,}",
                f"{group['share']:.1%}",
                "-" if group["seconds"] is None else f"{group['seconds']:,.1f} s",
                "-" if group["usd"] is None else f"{group['usd']:,.4f}",
                max(group["causes"], key=group["causes"].get),
            )
            for group in found[name]
        ]
        for title, name in ((found["by"].upper(), "groups"), ("CAUSE", "causes"))
    }
    computed = "unknown" if (count := found["computed_tokens"]) is None else f"{count:,}"
    parts = [f"{computed} prompt tokens computed in {found['range']}"]
    for title, listed in rows.items():
        if listed:
            head = (title, "TOKENS", "SHARE", "PREFILL", "USD", "MAIN CAUSE")
            most = len(head) - (title == "CAUSE")
            table = output.table(head[:most], [row[:most] for row in listed])
            parts += ["", table]
    return "\n".join([*parts, *filter(None, [found["note"]])])


_ONE_RANGES, _ALL_RANGES = ("1h", "6h", "24h"), ("1h", "24h", "7d", "30d")


def _misses(context: CommandContext) -> dict[str, Any]:
    options = context.options
    query = {name: options[name] for name in ("range", "cause", "by") if options[name]}
    of_endpoint = ("endpoints", options["name"]) if options["name"] else ()
    return dict(context.client.get(*of_endpoint, "misses", **query))


def add_misses(rooms: Verbs) -> None:
    verb = rooms.verb(
        "misses",
        "show the computed prompt tokens by cause, of an endpoint or of all by group",
        call=_misses,
        show=_format_misses,
    )
    verb.add("name", nargs="?", default="", help="endpoint name; without it all endpoints")
    ranges = tuple(dict.fromkeys((*_ONE_RANGES, *_ALL_RANGES)))
    text = f"{', '.join(_ONE_RANGES)}; of all endpoints {', '.join(_ALL_RANGES)} (24h)"
    verb.add("--range", default="24h", choices=ranges, help=text)
    verb.add("--cause", default="", help="with example decisions of this cause, of one endpoint")
    verb.add(
        "--by", default="", help="endpoint, team, model, machine or tag:KEY, of all (endpoint)"
    )
