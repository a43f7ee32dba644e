"""Rules for single values which name things of a cluster (see `spec_words`).

Promises, for each refusal, a message, a remedy and a stable code, and that no value of an
environment is repeated. Must not know Django, other fields or a cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from endpoints.spec.validators import CONTROL, Problem

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def object_name_problem(value: str) -> Problem | None:
    if not value or _SUBDOMAIN.fullmatch(value):
        return None
    remedy = "Use lower-case letters, digits, dashes and dots."
    return f"{value!r} cannot name an object of a cluster.", remedy, "invalid_name"


def label_name_problem(value: str) -> Problem | None:
    if not value or _LABEL.fullmatch(value):
        return None
    remedy = "Use up to 63 lower-case letters, digits and dashes."
    return f"{value!r} cannot name an object of a cluster.", remedy, "invalid_name"


def path_problem(value: str) -> Problem | None:
    if not value or (value.startswith("/") and ".." not in value.split("/")):
        return None
    return "The path must be absolute, without ..", "Start it with /.", "invalid_path"


def key_values(text: str) -> Mapping[str, str] | str:
    """Return the pairs of a text such as `team=search, app=chat`, one per line or separated by
    commas; the text itself where a part has no `=`."""
    parts = [part.strip() for part in re.split(r"[,\n]", text) if part.strip()]
    if not all("=" in part for part in parts):
        return text
    pairs = (part.partition("=") for part in parts)
    return {name.strip(): value.strip() for name, _, value in pairs}


def key_values_problem(value: Mapping[str, Any]) -> Problem | None:
    """Names as labels and annotations have them, texts as values."""
    for name, text in value.items():
        if not _QUALIFIED.fullmatch(name):
            remedy = "Write names such as team or example.com/team."
            return f"{name!r} cannot be a name.", remedy, "invalid_key"
        if not isinstance(text, str) or CONTROL.search(text):
            return f"The value of {name!r} is no text.", 'Write it as "text".', "invalid_value"
    return None


def env_problem(value: Mapping[str, Any]) -> Problem | None:
    for name, text in value.items():
        if not _VARIABLE.fullmatch(name):
            remedy = "Use letters, digits and _, such as HF_HOME."
            return f"{name!r} cannot name a variable.", remedy, "invalid_key"
        if not isinstance(text, str):
            return f"The value of {name!r} is no text.", 'Write it as "text".', "invalid_value"
    return None


def objects_problem(value: Sequence[Any]) -> Problem | None:
    if all(isinstance(item, dict) for item in value):
        return None
    return "An item is no object.", "Give a list of objects.", "invalid_item"
