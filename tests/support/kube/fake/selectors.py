"""Label and field selectors, in query and object syntax."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.support.kube.fake.refusals import ApiError

_TERM = re.compile(
    r"\s*(?:(?P<set>[^\s!=,()]+)\s+(?P<how>in|notin)\s*\((?P<values>[^)]*)\)"
    r"|(?P<key>[^\s!=,()]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^,]*)"
    r"|(?P<absent>!)\s*(?P<no>[^\s,]+)|(?P<exists>[^\s!=,()]+))\s*(?:,|$)"
)


def by_labels(text: str, labels: Mapping[str, str]) -> bool:
    at = 0
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None:
            raise ApiError(400, f"unable to parse requirement: {text[at:]!r}")
        if not _fits(term, labels):
            return False
        at = term.end()
    return True


def _fits(term: re.Match[str], labels: Mapping[str, str]) -> bool:
    if term["set"]:
        values = [value.strip() for value in term["values"].split(",")]
        return (labels.get(term["set"]) in values) is (term["how"] == "in")
    if term["key"]:
        return (labels.get(term["key"]) == term["value"].strip()) is (term["op"] != "!=")
    return term["no"] not in labels if term["absent"] else term["exists"] in labels


def by_fields(text: str, data: Mapping[str, Any]) -> bool:
    for term in filter(None, text.split(",")):
        path, wrong, value = re.split(r"(!?=)=?", term, maxsplit=1)
        found: Any = data
        for part in path.split("."):
            found = found.get(part, "") if isinstance(found, Mapping) else ""
        if (str(found) == value) is (wrong == "!="):
            return False
    return True


def by_object(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Match a LabelSelector; None selects nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    return all(expression(item, labels) for item in selector.get("matchExpressions", ()))


def expression(item: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Match an expression of a LabelSelector or node affinity."""
    key, values, operator = item["key"], item.get("values", ()), item["operator"]
    if operator in ("In", "NotIn"):
        return (labels.get(key) in values) is (operator == "In")
    if operator in ("Exists", "DoesNotExist"):
        return (key in labels) is (operator == "Exists")
    number = int(labels.get(key, 0))
    return number > int(values[0]) if operator == "Gt" else number < int(values[0])
