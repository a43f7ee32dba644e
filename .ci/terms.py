#!/usr/bin/env python3
"""Find words in UI texts and documents that the glossary replaces with the field's terms.

Reads templates, docs and the string constants of the product's Python (docstrings apart). The
exit status is 1 when something is found. A phrase is listed only where no correct use is known.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
APPS = ("console", "endpoints", "routing", "cachetier", "dashboards")
# What is found, and what to write instead. Matched with the letter case as written here.
GLOSSARY = {
    r"half within|9 of 10 within": "TTFT p50, TTFT p90",
    r"[Pp]rompt tokens not computed again": "Cache hit rate (prompt tokens)",
    r"Where prompt tokens came from": "Prompt tokens by source",
    r"What callers feel": "Latency and errors",
    r"What the cache does": "Cache",
    r"How good it is": "Service quality",
    r"Why the router chose": "Routing reasons",
    r"Refused at the door": "Rejected requests",
    r"Requests sent again": "Retried requests",
    r"Waiting at the router": "Router queue depth",
    r"How unlike": "Load imbalance",
    r"Slowest first tokens": "TTFT p95, TTFT p99",
    r"Placed without knowing": "Fallback decisions",
    r"How late the index": "KV event lag",
    r"Time to look something up": "Lookup latency",
    r"How full": "Utilization",
    r"[Ww]ants attention": "Needs attention",
    r"Changed in the last day": "Recent changes",
    r"The trail\b|\bthe trail\b": "Audit log",
    r"Does it fit\b": "Capacity check",
    r"\bfits, but\b": "fits with limits",
    r"things? to put right": "1 error, 2 errors",
    r"looked at just now": "updated just now",
    r"died again and again": "crash loop: 3 restarts in 50 s",
    r"\bCall it\b": "API access",
    r"\bAll of it\b": "View all",
    r"The first of them": "First",
    r"Somewhere to run": "Compute",
    r"\bColleagues\b": "Team members",
    r"Zero all along": "All values are zero",
    r"Little load: dear": "Unit cost is high at low load",
    r"[Hh]ow these are reckoned": "How costs are calculated",
    r"Nobody is told of": "No alert receivers configured",
    r"Tell it of all": "Send all alerts",
    r"How it stands": "Status",
    r"for who wants one": "Optional",
    r"\bTake in\b": "Add member",
    r"nobody's team": "No team",
    r"[Rr]equests a second": "Requests/s",
    r"An hour, now": "Current hourly cost",
    r"\bput right\b": "fix, 1 error",
    r"looked at \d|\bwanted ready\b": "checked 5 s ago, 2/2 workers ready",
    r"Every path of a vLLM": "Supports all vLLM API paths.",
    r"Tokens to answer": "Max output tokens",
    r"Nothing known\b": "No cached prefix",
    r"Best was down": "Preferred worker down",
    r"Load won\b": "Diverted by load",
    r"Work it had": "Queued tokens",
    r"\breckoned\b": "calculated",
    r"\bLately\b": "Recent",
    r"no duration up to": "Enter a duration up to 7 days",
    r"[Tt]his begins as JSON": "Invalid JSON",
    r"as it was built in": "Leave empty for the default",
    r"deaths so far": "3 restarts",
    r"Ask an admin of": "Ask an administrator for access.",
    r"[Pp]romises that|Must not know": "state the contract",
    r"Bearer (?:ebk_|\$(?=[A-Za-z(])(?!EMBERLINE_(?:API_KEY|TOKEN)\b))": (
        "$EMBERLINE_API_KEY for a key of an endpoint, $EMBERLINE_TOKEN for a token of the console"
    ),
    r"New endpoint\b": "Create endpoint",
    r"played kubelet|fleet of our own": "simulated kubelet, simulated fleet",
}
_DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
WORD = re.compile("|".join(f"(?P<t{n}>{pattern})" for n, pattern in enumerate(GLOSSARY)))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number, text) of everything in the file that a person reads."""
    source = path.read_text()
    if path.suffix != ".py":
        yield from enumerate(source.splitlines(), 1)
        return
    docstrings = set()
    for node in ast.walk(ast.parse(source)):  # an object before what it contains
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and id(node) not in docstrings:
                yield node.lineno, node.value
        elif isinstance(node, _DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr):
            docstrings.add(id(node.body[0].value))


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "*.md", "templates", *(f"{app}/*.py" for app in APPS)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    problems = 0
    for name in listed:
        elsewhere = name == "CHANGELOG.md" or "/migrations/" in name
        if elsewhere or not (ROOT / name).is_file():
            continue
        for line, text in texts(ROOT / name):
            for match in WORD.finditer(text):
                term = list(GLOSSARY.values())[int(str(match.lastgroup)[1:])]
                print(f"{name}:{line}: {match[0]!r}: write {term!r}")
                problems += 1
    return int(problems > 0)


if __name__ == "__main__":
    sys.exit(main())
