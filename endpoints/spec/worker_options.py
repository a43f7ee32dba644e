"""Check of worker arguments against the options of a vLLM version.

The tables in `vllm_options` are generated from vLLM's own parser by .ci/vllm_options.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

from endpoints.spec.validators import OWN_FLAGS, Problem

_FOLDER = Path(__file__).parent / "vllm_options"
_INTEGER = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_SIZE = re.compile(r"[0-9]+(\.[0-9]+)?[kmgtKMGT]?|-1")
_NEGATIVE = re.compile(r"-\d+|-\d*\.\d+")
_MEANINGS = {
    "int": "an integer",
    "size": "an integer, such as 4096 or 4k",
    "float": "a number",
    "json": "a JSON object",
}
_SHOWN_CHOICES = 12
_BREAKING = {
    "--disable-log-stats": "the router and the boards read the worker's metrics",
    "--grpc": "a worker must serve HTTP",
    "--no-enable-prompt-tokens-details": "the dashboards require the details",
    "--no-enable-scale-out": "kvaware requires the worker's renderer",
    **dict.fromkeys(
        (
            *("--nnodes", "--node-rank", "--master-addr", "--master-port", "-n", "-r"),
            *("--data-parallel-address", "--data-parallel-external-lb", "-dpa", "-dpe"),
            *("--data-parallel-hybrid-lb", "--data-parallel-multi-port-external-lb", "-dph"),
            *("--data-parallel-rank", "--data-parallel-rpc-port", "-dpm", "-dpn", "-dpp"),
            *("--data-parallel-size-local", "--data-parallel-start-rank", "-dpl", "-dpr"),
        ),
        "all engines of a worker run on its own machine",
    ),
}
"""Options with which a worker never becomes ready, or misses what Emberline reads of it."""


@lru_cache(maxsize=8)
def options_of(version: str) -> Mapping[str, str] | None:
    """Return the kind of each option by name, None for an unknown version.

    A kind is "flag" (no value), "int", "size", "float", "json" or "text", followed by the number of
    values as in argparse ("text+"), or "choice:a|b".
    """
    if not version or not re.fullmatch(r"[0-9.]+", version):
        return None
    try:
        document: dict[str, str] = json.loads((_FOLDER / f"{version}.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    return document


def supported_versions() -> tuple[str, ...]:
    """Return the versions with a table, latest last."""
    names = (path.stem for path in _FOLDER.glob("*.json"))
    return tuple(sorted(names, key=lambda name: [int(part) for part in name.split(".")]))


def option_problems(args: Sequence[str], version: str) -> Iterator[Problem]:
    """Yield a problem for each argument that this vLLM version rejects or that a worker cannot
    have. Nothing for an unknown version.
    """
    options = options_of(version)
    position = 0
    while options is not None and position < len(args):
        word = args[position]
        following = _values(args, position + 1)
        problem, taken = _check(word, following, options, version)
        if problem is not None:
            yield problem
        position += 1 + taken


def _values(args: Sequence[str], start: int) -> list[str]:
    """Return the words up to the next option."""
    values = []
    for word in args[start:]:
        if word.startswith("-") and len(word) > 1 and not _NEGATIVE.fullmatch(word):
            break
        values.append(word)
    return values


def _check(
    word: str, following: list[str], options: Mapping[str, str], version: str
) -> tuple[Problem | None, int]:
    """Return the problem of an option and the number of following words that are its values."""
    if not word.startswith("-") or _NEGATIVE.fullmatch(word):
        text = "A value has no option."  # not repeated: it may be a secret
        return (text, "Write --option=value on one line.", "invalid_argument"), 0
    option, equals, value = word.partition("=")
    resolved = _resolve(option, options)
    if not resolved and not option.startswith("--") and len(option) > 2:
        short = "--optimization-level" if option.startswith("-O") else option[:2]
        if options.get(short, "flag") != "flag":
            resolved = [short]
            option, equals, value = option[:2], "=", word[2:].removeprefix("=")
    if len(resolved) != 1:
        return _unknown(option, resolved, options, version), len(following)
    name, kind = resolved[0], options[resolved[0]]
    if name in _BREAKING:
        return _breaking(option, name), 0 if equals or kind == "flag" else len(following)
    if "." in option:
        return _missing(option, kind) if not (equals or following) else None, 0 if equals else 1
    if kind == "flag":
        problem = _unexpected(option, value) if equals else None
        return problem, 0
    values, taken = ([value], 0) if equals else _taken(kind, following)
    if not values and "?" not in kind:
        return _missing(name, kind), 0
    wrong = next((value for value in values if not _is_valid(kind, value)), None)
    return _invalid(name, kind, wrong) if wrong is not None else None, taken


def _taken(kind: str, following: list[str]) -> tuple[list[str], int]:
    many = "+" in kind.partition(":")[0] or "*" in kind.partition(":")[0]
    values = following if many else following[:1]
    return values, len(values)


def _resolve(given: str, options: Mapping[str, str]) -> list[str]:
    """Return the options that vLLM would read: exact, or by an abbreviation."""
    name = given.partition(".")[0]
    name = f"--{name[2:].replace('_', '-')}" if name.startswith("--") else name
    if name in options:
        return [name]
    return (
        [option for option in options if option.startswith(name)] if name.startswith("--") else []
    )


def _unknown(given: str, found: Sequence[str], options: Mapping[str, str], version: str) -> Problem:
    if found:
        remedy = f"Write one of: {', '.join(found[:_SHOWN_CHOICES])}."
        return f"{given} is ambiguous in vLLM {version}.", remedy, "unknown_argument"
    offered = [name for name in options if name not in OWN_FLAGS]
    close = get_close_matches(given.replace("_", "-"), offered, n=1, cutoff=0.7)
    remedy = f"Did you mean {close[0]}?" if close else f"Remove {given}."
    return f"vLLM {version} has no option {given}.", remedy, "unknown_argument"


def _breaking(given: str, name: str) -> Problem:
    spelling = name if name == given else f"{given} (read as {name})"
    return f"{spelling} is not supported: {_BREAKING[name]}.", f"Remove {given}.", "unsupported"


def _missing(name: str, kind: str) -> Problem:
    return f"{name} needs a value.", f"Write {name}=VALUE: {_meaning(kind)}.", "invalid_argument"


def _unexpected(name: str, value: str) -> Problem:
    remedy = f"Write {name} alone."
    if value.lower() in ("false", "0", "no", "off") and name.startswith("--"):
        off = f"--{name[5:]}" if name.startswith("--no-") else f"--no-{name[2:]}"
        remedy = f"Write {off} to turn it off, or remove it."
    return f"{name} takes no value.", remedy, "invalid_argument"


def _invalid(name: str, kind: str, value: str) -> Problem:
    if kind.startswith("choice"):
        choices = kind.partition(":")[2].split("|")
        close = get_close_matches(value, choices, n=1)
        more = "" if len(choices) <= _SHOWN_CHOICES else ", …"
        listed = f"Choose one of: {', '.join(choices[:_SHOWN_CHOICES])}{more}."
        remedy = f"Did you mean {close[0]}? {listed}" if close else listed
        return f"{value!r} is not a value of {name}.", remedy, "invalid_argument"
    remedy = f"Give {_meaning(kind)}."
    return f"{value!r} is not a value of {name}.", remedy, "invalid_argument"


def _meaning(kind: str) -> str:
    base, _, choices = kind.partition(":")
    if choices:
        return f"one of {choices.replace('|', ', ')}"
    return _MEANINGS.get(base.rstrip("+*?"), "a text")


def _is_valid(kind: str, value: str) -> bool:
    base, _, choices = kind.partition(":")
    base = base.rstrip("+*?")
    if base == "choice":
        return value in choices.split("|")
    if base == "int":
        return bool(_INTEGER.fullmatch(value.strip()))
    if base == "size":
        return bool(_SIZE.fullmatch(value.strip())) or value.strip().lower() == "auto"
    if base == "float":
        return _parses(float, value)
    return _parses(json.loads, value) if base == "json" else True


def _parses(convert: Callable[[str], Any], value: str) -> bool:
    try:
        convert(value)
    except ValueError:
        return False
    return True
