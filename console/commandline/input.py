"""Parse arguments and files into data."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from console.client import NotFound
from console.commandline.context import (
    FAILED,
    NOT_FOUND,
    REFUSED,
    USAGE,
    CommandContext,
    CommandError,
)
from console.core import yaml_reader
from console.core.yaml_reader import YamlError
from endpoints.manifests import documents
from endpoints.spec.endpoint_spec import SpecErrors, flatten, nest
from endpoints.spec.fields import BY_PATH

Row = TypeVar("Row", bound=Mapping[str, Any])
_ENDINGS = (".yaml", ".yml", ".json")


def read_text(path: str) -> str:
    """Read a file; "-" is standard input."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.", USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not UTF-8.", USAGE) from error


def read_document(path: str) -> dict[str, Any]:
    try:
        data = yaml_reader.read_document(read_text(path))
    except YamlError as error:
        raise CommandError(f"{path} is neither JSON nor YAML: {error}", USAGE) from error
    if not isinstance(data, dict):
        raise CommandError(f"{path}: expected one object with its fields.", USAGE)
    return data


def read_objects(path: str) -> list[dict[str, Any]]:
    """Read all objects from a file, the files of a folder, or standard input."""
    if path == "-" or not Path(path).is_dir():
        return _objects(path)
    files = sorted(entry for entry in Path(path).iterdir() if entry.suffix in _ENDINGS)
    if not files:
        raise CommandError(f"{path} has no files ending in {', '.join(_ENDINGS)}.", USAGE)
    return [item for file in files for item in _objects(str(file))]


def _objects(path: str) -> list[dict[str, Any]]:
    try:
        return documents.read_documents(read_text(path))
    except SpecErrors as error:
        problems = "\n".join(
            f"{path}: {problem.message} {problem.remedy}" for problem in error.errors
        )
        raise CommandError(problems, REFUSED) from None


def find_row(rows: Iterable[Row], given: str, what: str, listing: str) -> Row:
    """Return the row with this id, name or prefix; an id takes precedence.

    `what` names the kind ("key of demo"), `listing` the command that lists them. Raise CommandError
    if no row or several rows match.
    """
    listed = list(rows)
    matching = [row for row in listed if str(row["id"]) == given]
    matching = matching or [row for row in listed if given in (row["name"], row.get("prefix"))]
    if len(matching) == 1:
        return matching[0]
    if matching:
        ids = ", ".join(str(row["id"]) for row in matching)
        raise CommandError(f"{len(matching)} {what} match {given!r}. Give one id: {ids}.", REFUSED)
    raise CommandError(f"No {what} has the id or name {given!r}. List them: {listing}", NOT_FOUND)


@contextmanager
def known_name(
    context: CommandContext, what: str, listing: str, exit_code: int = NOT_FOUND
) -> Iterator[None]:
    """If the console does not find the verb's object, raise CommandError with the names in the list
    at the path `listing`.
    """
    try:
        yield
    except NotFound:
        names = ", ".join(row["name"] for row in context.client.pages(listing)) or "none"
        text = f"Unknown {what} {context.name}. Known: {names}."
        raise CommandError(text, exit_code) from None


def confirm(context: CommandContext, name: str, consequence: str) -> None:
    """Return if the user confirmed: by `--yes`, or on the terminal by y or the name."""
    if context.options["yes"]:
        return
    if not sys.stdin.isatty():
        text = f"{consequence} Not confirmed, because standard input is no terminal. Add --yes."
        raise CommandError(text, USAGE)
    context.err.write(f"{consequence}\nContinue? Enter y or {name} [y/N]: ")
    context.err.flush()
    if sys.stdin.readline().strip() not in ("y", "Y", "yes", name):
        raise CommandError("Canceled. Nothing was changed.", FAILED)


def read_fields(context: CommandContext) -> dict[str, Any]:
    """Merge the fields of `--file` with those of `--set`, which win."""
    file = read_document(context.options["file"]) if context.options["file"] else {}
    return {**file, **parse_facts(context.options["fields"])}


def parse_settings(words: list[str]) -> dict[str, Any]:
    """Parse ["cache.l2.enabled=true"] into {"cache": {"l2": {"enabled": True}}}."""
    flat = {}
    for path, value in _pairs(words):
        flat[path] = _value(path, value)
    return nest(flat)


def parse_facts(words: list[str]) -> dict[str, Any]:
    """Parse ["memory_gib=16"] into {"memory_gib": 16}: JSON if valid, else text."""
    return {path: _json(value) for path, value in _pairs(words)}


def merge(*parts: dict[str, Any]) -> dict[str, Any]:
    """Merge recursively; later parts win."""
    flat: dict[str, Any] = {}
    for part in parts:
        flat |= flatten(part)
    return nest(flat)


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    pairs = []
    for word in words:
        path, separator, value = word.partition("=")
        if not separator:
            raise CommandError(f"{word!r}: expected FIELD=VALUE, for example replicas=2.", USAGE)
        pairs.append((path.strip(), value))
    return pairs


def _value(path: str, text: str) -> Any:
    """Parse into the field's type if possible; otherwise leave validation to the console."""
    field = BY_PATH.get(path)
    if field is None or field.kind is str:
        return text
    if field.kind is tuple:
        return text.split() if text else []
    return _json(text.lower() if field.kind is bool else text, text)


def _json(text: str, otherwise: str | None = None) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text if otherwise is None else otherwise
