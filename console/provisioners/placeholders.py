"""Fills `{host}`, `{port:NAME}`, `{channel:NAME}`, `{dir}` and `{replica}`; other braces stay.

Promises one pass: a value which itself looks like a placeholder is not filled again. Must not
know where the values come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from console.provisioners.base import PermanentError

_PLACEHOLDER = re.compile(r"\{(host|dir|replica|(?:port|channel):[A-Za-z0-9_-]+)\}")


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """What the placeholders of one replica stand for."""

    host: str
    dir: str
    replica: int | str
    ports: Mapping[str, int]
    channels: Mapping[str, str] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: self._value(match.group(1)), text)

    def _value(self, name: str) -> str:
        if name == "host":
            return self.host
        if name == "dir":
            return self.dir
        if name == "replica":
            return str(self.replica)
        kind, _, wanted = name.partition(":")
        values = self.ports if kind == "port" else self.channels
        if wanted not in values:
            known = ", ".join(sorted(values)) or "none"
            message = f"The spec names {kind} {wanted!r}; it has: {known}."
            raise PermanentError("UnknownPort", message)
        return str(values[wanted])
