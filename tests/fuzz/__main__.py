"""`python -m tests.fuzz [TARGET ...] [--seconds N]`: fuzz each target for N seconds in turn.

The corpus in var/fuzz is reused by the next run. An input that violates an invariant ends the run
and is written to var/fuzz/findings: move it to TARGET's folder in
tests/routing/engine/fuzz_cases or tests/cachetier/wire/fuzz_cases, where the tests replay it, and
fix the reader.
"""

from __future__ import annotations

import argparse
import importlib
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CORPUS = Path("var/fuzz")


class Suite(NamedTuple):
    """Modules with targets and seeds, instrumented packages, folder of test cases."""

    targets: str
    seeds: str
    room: str
    cases: Path


_ROUTER = Suite(
    "tests.fuzz.targets",
    "tests.fuzz.seeds",
    "routing.engine",
    Path("tests/routing/engine/fuzz_cases"),
)
_CACHE = Suite(
    "tests.fuzz.resp", "tests.fuzz.resp_seeds", "cachetier", Path("tests/cachetier/wire/fuzz_cases")
)
SUITES = dict.fromkeys(
    ("requests", "answers", "heads", "chunks", "bodies", "tails", "configs"), _ROUTER
) | dict.fromkeys(("resp", "sessions", "globs"), _CACHE)
MAX_BYTES = 3000


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


def _run_here(name: str, seconds: int) -> None:
    """Run the target; never returns, as libFuzzer exits the process."""
    import atheris

    suite = SUITES[name]
    with atheris.instrument_imports(include=[suite.room]):
        targets = importlib.import_module(suite.targets).TARGETS
    seeds = importlib.import_module(suite.seeds)

    corpus, findings = CORPUS / name, CORPUS / "findings"
    corpus.mkdir(parents=True, exist_ok=True)
    findings.mkdir(parents=True, exist_ok=True)
    for index, seed in enumerate(seeds.SEEDS[name]):
        (corpus / f"seed-{index}").write_bytes(seed)
    words = CORPUS / f"words-{name}"
    words.write_text("".join(f'"{_escaped(word)}"\n' for word in seeds.WORDS))
    folders = [str(corpus)]
    if (suite.cases / name).is_dir():
        folders.append(str(suite.cases / name))
    atheris.Setup(
        [
            sys.argv[0],
            f"-max_total_time={seconds}",
            f"-max_len={MAX_BYTES}",
            f"-dict={words}",
            "-timeout=20",
            "-rss_limit_mb=2048",
            "-print_final_stats=1",
            f"-artifact_prefix={findings}/{name}-",
            *folders,
        ],
        targets[name],
    )
    atheris.Fuzz()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*SUITES, []], metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=150, help="for each target")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.here:
        _run_here(flags.targets[0], flags.seconds)
    failed = False
    for name in flags.targets or SUITES:
        print(f"\n== {name}, {flags.seconds} s", flush=True)
        command = [sys.executable, "-m", "tests.fuzz", name, "--here"]
        ended = subprocess.run([*command, "--seconds", str(flags.seconds)], check=False)
        failed = failed or ended.returncode != 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
