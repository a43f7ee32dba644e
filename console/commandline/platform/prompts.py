"""`prompts check`, which reads files only: no console is needed.

Exit codes: 0 no early changes, 1 advice, 2 bad input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from console.commandline.context import (
    FAILED,
    OK,
    USAGE,
    CommandContext,
    CommandError,
    CommandResult,
)
from console.commandline.input import read_text
from console.commandline.verbs import Verbs

_CAUSES = {
    "changed_timestamp": "timestamp",
    "changed_id": "ID or number",
    "changed_order": "reordered keys or tools",
    "changed_whitespace": "white space",
    "changed_text": "text",
    "other_salt": "cache salt",
    "other_model": "model",
    "other_template": "template arguments",
}


def check(context: CommandContext) -> CommandResult:
    # Imported here: other commands start without it.
    from routing.analysis import prompt_check

    path, least = context.options["file"], context.options["least"]
    try:
        prompts = prompt_check.read_prompts(read_text(path))
    except prompt_check.PromptError as error:
        raise CommandError(f"{path}: {error}", USAGE) from None
    least = prompt_check.LEAST_TOKENS if least is None else least
    findings = prompt_check.check_prompts(prompts, least)
    return CommandResult(
        prompt_check.as_document(len(prompts), findings), FAILED if findings else OK
    )


def _format(found: dict[str, Any]) -> Iterator[str]:
    for row in found["findings"]:
        first, second = row["prompts"]
        pairs = f" and {row['pairs'] - 1} more" if row["pairs"] > 1 else ""
        yield f"Prompts {first} and {second}{pairs}: {_CAUSES[row['cause']]} ({row['cause']})"
        if row["part"]:
            yield f"  at:     {row['part']}, character {row['character']}, byte {row['offset']}"
            yield f"  before: {row['before'] or '(nothing)'}"
            yield f"  after:  {row['after'] or '(nothing)'}"
        yield f"  stable: about {row['stable_tokens']:,} tokens behind it are computed again"
        yield f"  remedy: {row['remedy']}"
        yield ""
    count = len(found["findings"])
    result = f"{count} finding{'s' if count != 1 else ''}" if count else "no early changes"
    yield f"{found['prompts']} prompts: {result}."


def add_prompts(rooms: Verbs) -> None:
    verbs = rooms.group("prompts", "check prompts for layouts that the prefix cache cannot use")
    text = "compare prompts of one template; exit code 0: no early changes, 1: advice, 2: bad input"
    verb = verbs.verb("check", text, call=check, show=_format)
    text = (
        "JSON array or JSON lines of two or more prompts or request bodies; - reads standard input"
    )
    verb.add("file", help=text)
    text = "smallest stable part that is reported, in tokens (16)"
    verb.add("--least", type=int, metavar="TOKENS", help=text)
