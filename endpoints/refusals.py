"""Errors that reject an action as a whole, each with a stable code, a message and a remedy."""

from __future__ import annotations

from typing import Any

from console.core.errors import Problem, Refused
from endpoints.spec.endpoint_spec import SpecErrors


class RefusalError(Refused):
    status = 400

    def __init__(self, code: str, message: str, remedy: str, *, field: str = "") -> None:
        super().__init__(Problem(field, None, message, remedy, code), status_code=self.status)
        self.code = code
        self.message = message
        self.remedy = remedy


class ConflictError(RefusalError):
    status = 409


class NotFoundError(RefusalError):
    status = 404


class AwayError(RefusalError):
    status = 503


def logs_away(reason: str, message: str) -> AwayError:
    return AwayError(reason, message, "Try again in a moment; the endpoint's page says more.")


def no_endpoint(name: str) -> NotFoundError:
    return NotFoundError(
        "not_found", f"There is no endpoint called {name}.", "Choose one of the list of endpoints."
    )


def no_key(key_id: str) -> NotFoundError:
    return NotFoundError("not_found", f"There is no key {key_id}.", "Choose one of the list.")


def no_group(group_id: str) -> NotFoundError:
    remedy = "Choose one of the list of groups of keys."
    return NotFoundError("not_found", f"There is no group of keys {group_id}.", remedy)


def no_revision(name: str, number: int) -> NotFoundError:
    return NotFoundError(
        "not_found", f"{name} has no revision {number}.", "Choose one of its list of revisions."
    )


def no_drift(name: str, key: str) -> NotFoundError:
    return NotFoundError(
        "not_found",
        f"Nothing of {name} called {key} differs from what is wanted now.",
        "Look at its drift again: somebody may have changed it back.",
        field="key",
    )


def no_container(name: str, replica: str, container: str, known: list[str]) -> NotFoundError:
    which = f"{container} of {replica}" if container and replica else container or replica
    return NotFoundError(
        "not_found",
        f"{name} has no {which}.",
        f"Choose one of its containers: {', '.join(known) or 'none yet'}.",
        field="replica",
    )


def stale(name: str, generation: int, expected: int) -> ConflictError:
    return ConflictError(
        "stale",
        f"{name} was changed meanwhile: it is at generation {generation}, "
        f"and this change was made for {expected}.",
        "Load it again and repeat the change.",
    )


def name_taken(name: str) -> Problem:
    return Problem(
        "name",
        name,
        f"An endpoint called {name} exists, or is being deleted.",
        "Choose another name, or wait until the deletion has finished.",
        "name_taken",
    )


def fixed_name(name: str, other: str) -> Problem:
    return Problem(
        "name",
        other,
        f"The name cannot be changed from {name} to {other}.",
        "Leave it out, or create another endpoint.",
        "fixed",
    )


def key_name_of(value: Any) -> str:
    return _label_of(value, "A key needs a name.")


def group_name_of(value: Any) -> str:
    return _label_of(value, "A group of keys needs a name.")


def _label_of(value: Any, message: str) -> str:
    label = value.strip() if isinstance(value, str) else ""
    if not label or len(label) > 60 or not label.isprintable():
        raise SpecErrors(
            [
                Problem(
                    "name",
                    value,
                    message,
                    "Give 1 to 60 printable characters, such as the program that will use it.",
                    "invalid_name",
                )
            ]
        )
    return label


LONGEST_NOTE = 500


def parse_note(value: Any) -> str:
    note = value.strip().replace("\r\n", "\n") if isinstance(value, str) else None
    if note is None or len(note) > LONGEST_NOTE or not note.replace("\n", "").isprintable():
        remedy = f"Give up to {LONGEST_NOTE} printable characters, or leave it out."
        raise SpecErrors(
            [Problem("note", None, "The note cannot be kept.", remedy, "invalid_note")]
        )
    return note


def key_taken(label: str) -> Problem:
    return Problem(
        "name",
        label,
        f"A key called {label} exists.",
        "Choose another name, or revoke that key first.",
        "name_taken",
    )


def group_taken(label: str) -> Problem:
    return Problem(
        "name", label, f"A group called {label} exists.", "Choose another name.", "name_taken"
    )


def bad_body(field: str, value: Any, remedy: str, code: str = "type") -> Problem:
    messages = {"unknown_field": "There is no such field.", "required": "It is missing."}
    return Problem(field, value, messages.get(code, "This has the wrong type."), remedy, code)
