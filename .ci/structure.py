#!/usr/bin/env python3
"""Measure the structure of the code, tests and documents against the targets in CONTRIBUTING.md.

Usage: structure.py [--list] [--check]. With --check the exit status is 1 when a target is missed.
Code is read as text (ast); nothing is imported.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
APPS = ("console", "endpoints", "routing", "cachetier", "dashboards")
# Packages that are read one by one.
LARGE = {
    ("routing", "engine"),
    ("cachetier", "engine"),
    ("dashboards", "alerts"),
    ("dashboards", "insight"),
}
ENTRY_POINTS = ("__init__", "__main__", "apps", "urls")
# Class names that a framework prescribes.
PRESCRIBED = {"Meta", "Command", "Migration", "Config"}
# Pronouns, adverbs and verbs that say nothing as a module name.
VAGUE = {
    "told",
    "asked",
    "kept",
    "drawn",
    "known",
    "typed",
    "living",
    "beside",
    "meanwhile",
    "nowhere",
    "here",
    "look",
    "wishes",
    "happenings",
    "surroundings",
    "beginning",
    "honesty",
    "patience",
    "door",
    "desk",
    "presence",
    "glance",
}
# Words that say nothing as the name of a variable.
EMPTY = {
    *("found", "one", "facts", "known", "at", "wanted"),
    *("seen", "given", "kept", "shown", "told", "asked"),
}
GERUND = re.compile(r"(?:^|_)[a-z]{2,}ing$")
# Nouns of the field that end like a gerund; and what Django names after the app.
NOUNS = {
    "routing",
    "string",
    "setting",
    "ping",
    "engine",
    "logging",
    "tracing",
    "billing",
    "pricing",
    "caching",
    "autoscaling",
    "streaming",
    "handling",
    "binding",
    "scheduling",
    "sharding",
    "hashing",
    "encoding",
    "parsing",
    "ranking",
    "testing",
    "naming",
    "padding",
    "ring",
    "timing",
    "sizing",
    "rendering",
    "alerting",
}
# Folders of tests that follow no product module: whole flows, the packages, the benchmarks.
FREE_TESTS = ("journeys", "support", "packaging", "bench")


class Measure(NamedTuple):
    """A figure, its target (an upper limit) and what to list."""

    name: str
    value: float
    target: float
    offenders: list[str]


class Code(NamedTuple):
    """Product modules by dotted name: path, source lines, syntax tree."""

    paths: dict[str, str]
    lines: dict[str, int]
    trees: dict[str, ast.Module]

    def is_package(self, module: str) -> bool:
        return self.paths[module].endswith("__init__.py")


def tracked(*folders: str) -> list[str]:
    out = subprocess.run(
        ["git", "ls-files", "-z", "--", *folders], cwd=ROOT, capture_output=True, check=True
    )
    return [path for path in out.stdout.decode().split("\0") if (ROOT / path).is_file()]


def dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def read_code() -> Code:
    paths = [p for p in tracked(*APPS) if p.endswith(".py") and "/migrations/" not in p]
    texts = {path: (ROOT / path).read_text() for path in paths}
    return Code(
        {dotted(path): path for path in paths},
        {dotted(path): text.count("\n") for path, text in texts.items()},
        {dotted(path): ast.parse(text) for path, text in texts.items()},
    )


def imports(tree: ast.AST, lazy: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (dotted name, kind); kind is "top", "lazy" (in a function) or "typing"."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr | ast.expr_context | ast.operator | ast.cmpop | ast.arguments):
            continue  # most of a tree, and without imports
        if isinstance(node, ast.Import):
            yield from ((alias.name, "lazy" if lazy else "top") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            kind = "lazy" if lazy else "top"
            yield from ((f"{node.module}.{alias.name}", kind) for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield from ((name, "typing") for name, _ in imports(ast.Module(node.body, [])))
        else:
            inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            yield from imports(node, lazy or inner)


def edges(code: Code) -> dict[str, set[str]]:
    """Imports among product modules, lazy and typing ones included."""
    edges: dict[str, set[str]] = {module: set() for module in code.paths}
    for module, tree in code.trees.items():
        for name, _kind in imports(tree):
            target = name
            while target and target not in code.paths:
                target = target.rpartition(".")[0]
            # A package without code of its own is a name, not a module.
            if (
                target
                and target != module
                and (not code.is_package(target) or code.lines[target] > 3)
            ):
                edges[module].add(target)
    return edges


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[list[str]] = []

    def visit(node: str) -> None:
        number[node] = low[node] = len(number)
        stack.append(node)
        for target in graph[node]:
            if target not in number:
                visit(target)
            if target in stack:
                low[node] = min(low[node], low[target])
        if low[node] == number[node]:
            index = stack.index(node)
            group, stack[index:] = stack[index:], []
            if len(group) > 1:
                cycles.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for node in graph:
        if node not in number:
            visit(node)
    return cycles


def mutual_packages(graph: dict[str, set[str]], code: Code) -> list[str]:
    def package(module: str) -> str:
        return module if code.is_package(module) else module.rpartition(".")[0]

    pairs = {(package(a), package(b)) for a, targets in graph.items() for b in targets}
    return [
        f"{a} <-> {b}"
        for a, b in sorted(pairs)
        if a < b and (b, a) in pairs and not b.startswith(a + ".")
    ]


def unmatched_tests(code: Code) -> list[str]:
    """Test files that follow no module: `tests/<package>/test_<module>[_<aspect>].py`."""
    homes = set(code.paths) | {module.rpartition(".")[0] for module in code.paths}
    unmatched_tests = []
    for path in tracked("tests"):
        name = Path(path).name
        if not name.startswith("test_") or path.split("/")[1] in FREE_TESTS:
            continue
        folder = dotted(str(Path(path).parent)).removeprefix("tests.")
        words = Path(path).stem.removeprefix("test_").split("_")
        names = ("_".join(words[:end]) for end in range(len(words), 0, -1))
        if not any(f"{folder}.{name}" in homes for name in names):
            unmatched_tests.append(path)
    return unmatched_tests


def unnamed_classes(code: Code) -> list[str]:
    """Classes whose docstring begins with an attribute and never says what the class is."""
    return [
        f"{code.paths[module]}:{node.lineno} {node.name}"
        for module, tree in code.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and (ast.get_docstring(node) or "").startswith("`")
    ]


def empty_names(code: Code) -> list[str]:
    """Return the variables whose name does not say what they hold."""
    return [
        f"{code.paths[module]}:{node.lineno} {node.id}"
        for module, tree in code.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in EMPTY
    ]


def unmapped_packages(code: Code) -> list[str]:
    """Return the packages, two levels deep, in large ones three, that no map names."""
    folders = {Path(path).parent for path in code.paths.values()}
    packages = {
        "/".join(folder.parts[: 3 if folder.parts[:2] in LARGE else 2])
        for folder in folders
        if len(folder.parts) > 1
    }
    named = (ROOT / "docs/packages.md").read_text()
    plumbing = ("/migrations", "/management", "/templatetags")
    return sorted(p for p in packages if f"`{p}`" not in named and not p.endswith(plumbing))


def count_lines(folder: str, suffix: str) -> int:
    return sum((ROOT / p).read_text().count("\n") for p in tracked(folder) if p.endswith(suffix))


def measures() -> list[Measure]:
    code = read_code()
    real = [m for m in code.paths if not code.is_package(m) or code.lines[m] > 3]
    leaf = {m: "__init__" if code.is_package(m) else m.rpartition(".")[2] for m in real}
    folders = Counter(str(Path(code.paths[m]).parent) for m in real)
    small = [m for m in real if code.lines[m] < 60 and leaf[m] not in ENTRY_POINTS]
    graph = edges(code)
    loops = [" <-> ".join(group) for group in cycles(graph)]
    pairs = mutual_packages(graph, code)
    classes: dict[str, list[str]] = defaultdict(list)
    for module, tree in code.trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(module)
    shared = {c: ms for c, ms in classes.items() if len(ms) > 2 and c not in PRESCRIBED}
    vague = [
        code.paths[m]
        for m in real
        if VAGUE & set(leaf[m].split("_"))
        or (GERUND.search(leaf[m]) and leaf[m].split("_")[-1] not in NOUNS)
    ]
    unmatched, unmapped = unmatched_tests(code), unmapped_packages(code)
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    no_django = config["contracts"][0]["source_modules"]
    flat = [m for m in no_django if "*" not in m and m in code.paths and not code.is_package(m)]
    pages = {p: (ROOT / p).read_text().count("\n") for p in tracked("docs") if p.endswith(".md")}
    long_pages = [p for p, n in pages.items() if n > 200 and "/reference/" not in p]
    readme = (ROOT / "README.md").read_text().count("\n")
    sizes = [code.lines[m] for m in real]
    unnamed, empty = unnamed_classes(code), empty_names(code)
    print(
        f"{len(real)} modules, {sum(sizes):,} lines, median {statistics.median(sizes):.0f}, "
        f"{len(small)} under 60 lines"
    )
    longest = sorted(real, key=lambda m: -code.lines[m])[:5]
    return [
        Measure("modules in the fullest folder", max(folders.values()), 20,
                [f"{f}: {n}" for f, n in folders.most_common(8)]),
        Measure("modules under 60 lines, per cent", round(100 * len(small) / len(real)), 14,
                [f"{m}: {code.lines[m]}" for m in small]),
        Measure("longest module (lines)", max(sizes), 600,
                [f"{m}: {code.lines[m]}" for m in longest]),
        # A class is never split by inheritance to stay under the limit of a file.
        Measure("modules over 450 lines", sum(size > 450 for size in sizes), 1,
                [f"{m}: {code.lines[m]}" for m in longest]),
        Measure("import cycles (lazy and typing imports counted)", len(loops), 0, loops),
        Measure("package pairs that import each other", len(pairs), 0, pairs),
        Measure("class names defined three times or more", len(shared), 12,
                [f"{name}: {', '.join(where)}" for name, where in shared.items()]),
        Measure("module names that are no nouns", len(vague), 15, vague),
        Measure("class docstrings that begin with an attribute", len(unnamed), 0, unnamed),
        Measure("variables named by an empty word", len(empty), 100, empty),
        Measure("lines of bench", count_lines("bench", ".py"), 6000, []),
        Measure("lines of docs", count_lines("docs", ".md"), 6000, []),
        Measure("single modules in the no-Django contract", len(flat), 5, flat),
        Measure("test files without a module or journey", len(unmatched), 0, unmatched),
        Measure("packages that docs/packages.md does not name", len(unmapped), 0, unmapped),
        Measure("README lines", readme, 150, []),
        Measure("pages over 200 lines (reference apart)", len(long_pages), 0, long_pages),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--list", action="store_true", help="name the offenders")
    flags = parser.parse_args()
    missed = 0
    for measure in measures():
        is_met = measure.value <= measure.target
        missed += not is_met
        print(f"{'ok  ' if is_met else 'MISS'} {measure.name}: {measure.value} "
              f"(at most {measure.target})")  # fmt: skip
        if flags.list or (flags.check and not is_met):
            for offender in measure.offenders:
                print(f"       {offender}")
    return int(flags.check and missed > 0)


if __name__ == "__main__":
    sys.exit(main())
