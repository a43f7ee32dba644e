#!/usr/bin/env python3
"""Write the options of the installed vLLM's server to endpoints/spec/vllm_options/VERSION.json.

Usage: .venv-vllm/bin/python .ci/vllm_options.py (10 s). Types are determined by calling the
converters, which vLLM wraps.
"""

from __future__ import annotations

import argparse
import json
import re
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "endpoints" / "spec" / "vllm_options"
# Each kind with values that it accepts and rejects; the first that matches counts.
KINDS = (
    ("json", ('{"a": 1}',), ("x",)),
    ("int", ("12",), ("1.5", "x", "2k")),
    ("size", ("12", "2k"), ("x",)),
    ("float", ("12", "1.5"), ("x",)),
)
FLAGS = (argparse.BooleanOptionalAction, argparse._StoreTrueAction, argparse._StoreFalseAction)


def accepts(convert: Any, value: str) -> bool:
    try:
        convert(value)
    except Exception:  # noqa: BLE001 (converters raise anything)
        return False
    return True


def kind_of(action: argparse.Action) -> str:
    """Return "flag", or the type with its number of values: "int", "text+", "choice:a|b"."""
    if isinstance(action, FLAGS) or action.nargs == 0:
        return "flag"
    many = action.nargs if action.nargs in ("+", "*", "?") else ""
    if action.choices:
        return f"choice{many}:" + "|".join(
            str(choice) for choice in action.choices if choice is not None
        )
    convert = action.type
    if callable(convert):
        for name, good, bad in KINDS:
            if all(accepts(convert, value) for value in good) and not any(
                accepts(convert, value) for value in bad
            ):
                return f"{name}{many}"
    return f"text{many}"


def main() -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    options = {
        name: kind_of(action)
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction)
        for name in action.option_strings
    }
    names = re.compile(r"vllm(-cpu|-rocm)?")
    versions = {
        distribution.version
        for distribution in distributions()
        if names.fullmatch(distribution.metadata["Name"])
    }
    (version,) = {version.partition("+")[0] for version in versions}
    path = FOLDER / f"{version}.json"
    path.write_text(json.dumps(dict(sorted(options.items())), indent=0) + "\n", encoding="utf-8")
    print(f"{path}: {len(options)} options")


if __name__ == "__main__":
    main()
