#!/usr/bin/env python3
"""List every text a user can read, by file, in var/ui-texts.md.

For a review of texts: list both commits and compare the files. Placeholders and
template tags appear as {…}. Texts in Python are found by their shape (two words or more, or
the value of a label), so that keys and queries stay out; a few slip through.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "var" / "ui-texts.md"
APPS = ("console", "endpoints", "routing", "cachetier", "dashboards")
READABLE = ("title", "placeholder", "aria-label", "alt", "data-confirm", "data-label", "label")
LABELS = ("label", "title", "help_text", "verbose_name", "help", "name_text", "summary", "unit")
TAG = re.compile(r"{#.*?#}|{% comment %}.*?{% endcomment %}", re.DOTALL)
FILLED = re.compile(r"{[{%].*?[}%]}", re.DOTALL)
# Two words of letters, and nothing that only a query, a path or code has.
PROSE = re.compile(r"[A-Za-z’'…%$-]{2,}[,;:.)]? +\(?[A-Za-z0-9{$≥<]")
CODE = re.compile(
    r"::|\(\?|\\[dsw]|[a-z]\(\{|\bby \(|\bBY\b|SELECT |CREATE |[a-z_]+{[a-z_]+="
    r"|\[\d+[smh]\]|=~|=\"|/\w+/<|^#!"
    r"|^-{1,2}\w+ |[;{}]\n|^\s*import |\$\{|==|&&|^[a-z_]+(, ?[a-z_]+)*$|^[a-z_]+( [a-z_]+)+ = "
)


class Texts(HTMLParser):
    """Text nodes and readable attributes of a template whose tags are replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.depth_of_code = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.depth_of_code += tag in ("script", "style")
        self.found += [value for name, value in attrs if name in READABLE and value]

    def handle_endtag(self, tag: str) -> None:
        self.depth_of_code -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.depth_of_code:
            self.found.append(data)


def of_template(source: str) -> Iterator[str]:
    """Yield the texts of a Django template, and the quoted texts in its tags."""
    source = TAG.sub("", source)
    for tag in FILLED.findall(source):
        yield from (text for text in re.findall(r'"([^"]*)"', tag) if PROSE.search(text))
    parser = Texts()
    parser.feed(FILLED.sub("{…}", source))
    yield from parser.found


def of_python(source: str) -> Iterator[str]:
    """Yield the string constants that read as prose or are labels; docstrings apart."""
    tree = ast.parse(source)
    apart: set[int] = set()
    labels: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            apart.add(id(body[0].value))
        if isinstance(node, ast.JoinedStr):
            apart.update(map(id, node.values))
        if isinstance(node, ast.keyword) and node.arg in LABELS:
            labels.add(id(node.value))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
            "debug", "info", "warning", "error", "exception", "compile",
        ):  # fmt: skip
            apart.update(id(part) for argument in node.args for part in ast.walk(argument))
    for node in ast.walk(tree):
        if id(node) in apart:
            continue
        text = constant(node)
        if text and (id(node) in labels or (PROSE.search(text) and not CODE.search(text))):
            yield text


def constant(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(constant(value) or "{…}" for value in node.values)
    return ""


def of_script(source: str) -> Iterator[str]:
    """Yield the string literals of a script that read as prose."""
    for line in source.splitlines():
        if not line.lstrip().startswith(("//", "*", "/*")):
            for text in re.findall(r'"([^"\n]*)"|`([^`\n]*)`', line):
                joined = re.sub(r"\$\{.*?\}", "{…}", text[0] or text[1])
                if PROSE.search(joined) and not CODE.search(joined):
                    yield joined


READERS = {".html": of_template, ".txt": of_template, ".py": of_python, ".js": of_script}


def shown(texts: Iterable[str]) -> list[str]:
    """Return the texts on one line each, without repetition and without those of no word."""
    lines = (re.sub(r"\s+", " ", text).strip(" ·|:") for text in texts)
    return list(dict.fromkeys(x for x in lines if re.search(r"[A-Za-z]{2}", x.replace("{…}", ""))))


def document() -> str:
    kinds = [f"{app}/*.{kind}" for app in APPS for kind in ("py", "js", "html")]
    listed = subprocess.run(
        ["git", "ls-files", "templates", *kinds],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    parts = [
        "# Texts of the interface\n\nEvery text in pages, forms, messages, mails, the CLI and the "
        "API that a user can read, by the file\nit stands in. Written by `make texts`; do not edit."
        " `{…}` stands for a value or a template tag.\n"
    ]
    for name in sorted(set(listed)):
        path = ROOT / name
        if "/migrations/" in name or "/vendor/" in name or not path.is_file():
            continue
        if texts := shown(READERS.get(path.suffix, lambda _: iter(()))(path.read_text())):
            parts.append(f"## `{name}`\n\n```text\n" + "\n".join(texts) + "\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    LIST.parent.mkdir(exist_ok=True)
    LIST.write_text(document())
    print(f"{LIST.relative_to(ROOT)} is written")
