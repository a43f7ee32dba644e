"""What is typed, read into specs; what is refused, said in full."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from django.core.management.base import CommandError

from console.refusals import Problem
from endpoints.spec import FieldError, flatten, nest
from endpoints.spec_fields import BY_PATH


def explained(error: FieldError | Problem) -> str:
    """ "replicas: -1 was refused. Replicas cannot be less than 0. Give a whole number ..." """
    place = f"{error.field}: " if error.field else ""
    value = "" if error.value is None else f"{json.dumps(error.value, default=str)} was refused. "
    return f"{place}{value}{error.message} {error.remedy}"


def document(path: str) -> dict[str, Any]:
    """A JSON or YAML file; "-" reads standard input."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        data = yaml.safe_load(text)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise CommandError(f"{path} is neither JSON nor YAML: {error}") from error
    if not isinstance(data, dict):
        raise CommandError(f"{path} must hold one object with an endpoint's fields.")
    return data


def settings(words: list[str]) -> dict[str, Any]:
    """["cache.l2.enabled=true"] as {"cache": {"l2": {"enabled": True}}}."""
    flat = {}
    for word in words:
        path, separator, text = word.partition("=")
        if not separator:
            raise CommandError(f"--set {word}: write FIELD=VALUE, such as --set replicas=2.")
        flat[path.strip()] = _value(path.strip(), text)
    return nest(flat)


def together(*parts: dict[str, Any]) -> dict[str, Any]:
    """Later parts win."""
    flat: dict[str, Any] = {}
    for part in parts:
        flat |= flatten(part)
    return nest(flat)


def _value(path: str, text: str) -> Any:
    """In the field's own type where it can be read so; else as typed, for the spec to refuse."""
    field = BY_PATH.get(path)
    if field is None or field.kind is str:
        return text
    if field.kind is tuple:
        return text.split() if text else []
    try:
        return json.loads(text.lower() if field.kind is bool else text)
    except ValueError:
        return text
