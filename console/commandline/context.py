"""What a verb is given, and what it may answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from console.client import Client


class Out(Protocol):
    """As much of a file as verbs use."""

    def write(self, text: str, /) -> Any: ...

    def flush(self) -> Any: ...


class Here(Protocol):
    """What only the console's own machine can do."""

    def seed_demo(self) -> str: ...

    def doctor(self) -> tuple[str, bool]:
        """What was found, and whether nothing that is needed is missing."""
        ...

    def rekey(self) -> str: ...

    def audit(self, verb: str, argument: str) -> str:
        """`verify` (against an earlier head), `prune` (before a day) or `reseal`; raises Wrong."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """`text` for standard output; `exit_code` of verbs whose code is a verdict."""

    text: str
    exit_code: int = 0


class Wrong(Exception):
    """The verb did not do what was asked; `exit_code` says why to a program."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(slots=True)
class Asked:
    """One run of one verb. `out` is for what was asked for, `err` for what is said meanwhile.
    `here` is None where the console is another machine's."""

    options: dict[str, Any]
    out: Out
    err: Out
    connect: Callable[[], Client]
    here: Here | None = None
    _client: Client | None = field(default=None, init=False)

    @property
    def client(self) -> Client:
        """Made when first needed."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    @property
    def name(self) -> str:
        return str(self.options["name"])

    def say(self, line: str) -> None:
        self.err.write(f"{line}\n")
        self.err.flush()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


Run = Callable[[Asked], str | Answer]
