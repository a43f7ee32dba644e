"""Fills `{host}`, `{port:NAME}`, `{dir}` and `{replica}`; leaves every other brace alone.

Promises one pass: a value which itself looks like a placeholder is not filled again. Must not
know where the values come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from console.provisioners.base import PermanentError

_PLACEHOLDER = re.compile(r"\{(host|dir|replica|port:[A-Za-z0-9_-]+)\}")


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """What the placeholders of one replica stand for."""

    host: str
    dir: str
    replica: int
    ports: Mapping[str, int]

    def fill(self, text: str) -> str:
        return _PLACEHOLDER.sub(lambda match: self._value(match.group(1)), text)

    def _value(self, name: str) -> str:
        if name == "host":
            return self.host
        if name == "dir":
            return self.dir
        if name == "replica":
            return str(self.replica)
        port = name.removeprefix("port:")
        if port not in self.ports:
            known = ", ".join(sorted(self.ports)) or "none"
            raise PermanentError("UnknownPort", f"The spec names port {port!r}; it has: {known}.")
        return str(self.ports[port])
