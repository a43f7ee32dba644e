"""One run of `emberline`: what was typed, who is asked, what is printed, how it ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from console.client import ApiError, Client, EmberlineError
from console.commandline import exits
from console.commandline.context import Answer, Asked, Here, Out, Wrong


@dataclass(frozen=True, slots=True)
class Ended:
    """`text` is what was asked for, or, where `ok` is false, why it is not there."""

    text: str
    exit_code: int
    ok: bool


def run(
    options: dict[str, Any],
    connect: Callable[[], Client],
    out: Out,
    err: Out,
    here: Here | None = None,
) -> Ended:
    """Runs `options["run"]`. Nothing a console answers, or does not, is an exception of this."""
    asked = Asked(options, out, err, connect, here)
    try:
        said = options["run"](asked)
    except Wrong as error:
        return Ended(str(error), error.exit_code, ok=False)
    except EmberlineError as error:
        return Ended(_told(error, here), exits.of(error), ok=False)
    finally:
        asked.close()
    answer = said if isinstance(said, Answer) else Answer(said)
    return Ended(answer.text, answer.exit_code, ok=True)


def _told(error: EmberlineError, here: Here | None) -> str:
    lines = [str(error)]
    if isinstance(error, ApiError) and error.code in ("unknown", "server_error"):
        lines += [f"Its log has the request as {error.request_id}."] if error.request_id else []
        lines += ["Whether the console lacks something: emberline doctor"] if here else []
    return "\n".join(lines)
