"""Substitute Grafana variables, as Grafana does before a query."""

from __future__ import annotations

import re
from collections.abc import Mapping

ALWAYS = {
    "__rate_interval": "20s",
    "__rate_interval_ms": "20000",
    "__interval": "5s",
    "__range": "900s",
    "__range_s": "900",
}
ALL = {"namespace": ".+", "endpoint": ".+", "worker": ".*"}
DEMO = {"namespace": "default", "endpoint": "demo", "worker": ".*"}
# `$name`, or `${name:format}`; what is not declared stays, as label_replace's "$1" must.
_NAME = re.compile(r"\$(?:(\w+)|\{(\w+)(?::[^}]*)?\})")


def names(text: str) -> set[str]:
    found = {bare or braced for bare, braced in _NAME.findall(text)}
    return {name for name in found if not name.isdigit()}


def filled(text: str, chosen: Mapping[str, str]) -> str:
    known = {**ALWAYS, **chosen}
    return _NAME.sub(lambda match: known.get(match[1] or match[2], match[0]), text)
