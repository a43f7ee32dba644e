"""Input and results of a command line verb, and its execution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from console import client
from console.client import ApiError, Client, EmberlineError

OK = 0
FAILED = 1
USAGE = 2
REFUSED = 3
NOT_FOUND = 4
NOT_ALLOWED = 5
CONFLICT = 6
TIMEOUT = 7
UNREACHABLE = 8

_EXIT_CODES: tuple[tuple[type[client.EmberlineError], int], ...] = (
    (client.Unreachable, UNREACHABLE),
    (client.TimedOut, TIMEOUT),
    (client.NotFound, NOT_FOUND),
    (client.NotAllowed, NOT_ALLOWED),
    (client.Conflict, CONFLICT),
    (client.Throttled, UNREACHABLE),
    (client.Refused, REFUSED),
)


def exit_code_of(error: client.EmberlineError) -> int:
    return next((code for kind, code in _EXIT_CODES if isinstance(error, kind)), FAILED)


class CommandOutput(Protocol):
    def write(self, text: str, /) -> Any: ...

    def flush(self) -> Any: ...


class LocalConsole(Protocol):
    """Operations available only on the console's own machine."""

    def seed_demo(self) -> str: ...

    def doctor(self) -> tuple[str, bool]:
        """Return the report, and whether everything required is present."""
        ...

    def rekey(self) -> str: ...

    def audit(self, verb: str, argument: str) -> str:
        """Run `verify` (against an earlier head), `prune` (before a day) or `reseal`; raise
        CommandError.
        """
        ...


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a verb. `answer` is text or a document; `exit_code` is for verbs that return a
    verdict.
    """

    answer: Any
    exit_code: int = 0


class CommandError(Exception):
    """Failure of a verb; `exit_code` classifies it."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(slots=True)
class CommandContext:
    """One run of a verb. Results go to `out`, progress and notices to `err`. `here` is None for a
    remote console.
    """

    options: dict[str, Any]
    out: CommandOutput
    err: CommandOutput
    connect: Callable[[], Client]
    here: LocalConsole | None = None
    _client: Client | None = field(default=None, init=False)

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = self.connect()
        return self._client

    @property
    def name(self) -> str:
        return str(self.options["name"])

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the options that are set."""
        return {name: self.options[name] for name in names if self.options[name] is not None}

    def report(self, line: str) -> None:
        self.err.write(f"{line}\n")
        self.err.flush()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """End of a command before its result. `text` is the result, or the error if `ok` is false."""

    text: str
    exit_code: int
    ok: bool


def run(
    options: dict[str, Any],
    connect: Callable[[], Client],
    out: CommandOutput,
    err: CommandOutput,
    here: LocalConsole | None = None,
) -> CommandEnded:
    """Run `options["run"]`; errors of the console become a result, never an exception."""
    context = CommandContext(options, out, err, connect, here)
    try:
        result: CommandResult = options["run"](context)
    except CommandError as error:
        return CommandEnded(str(error), error.exit_code, ok=False)
    except EmberlineError as error:
        return CommandEnded(_error_text(error, here), exit_code_of(error), ok=False)
    finally:
        context.close()
    return CommandEnded(result.answer, result.exit_code, ok=True)


def _error_text(error: EmberlineError, here: LocalConsole | None) -> str:
    lines = [str(error)]
    if isinstance(error, ApiError) and error.code in ("unknown", "server_error"):
        lines += [f"Request ID in the console log: {error.request_id}."] if error.request_id else []
        lines += ["Check the installation: emberline doctor"] if here else []
    return "\n".join(lines)
