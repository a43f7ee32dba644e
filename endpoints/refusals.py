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
    return AwayError(reason, message, "Retry later; see the endpoint's page for its state.")


def no_endpoint(name: str) -> NotFoundError:
    return NotFoundError(
        "not_found", f"Unknown endpoint {name}.", "Choose one from the list of endpoints."
    )


def no_key(key_id: str) -> NotFoundError:
    return NotFoundError("not_found", f"Unknown key {key_id}.", "Choose one from the list.")


def no_group(group_id: str) -> NotFoundError:
    remedy = "Choose one from the list of key groups."
    return NotFoundError("not_found", f"Unknown key group {group_id}.", remedy)


def no_revision(name: str, number: int) -> NotFoundError:
    return NotFoundError(
        "not_found", f"{name} has no revision {number}.", "Choose one from the list of revisions."
    )


def no_drift(name: str, key: str) -> NotFoundError:
    return NotFoundError(
        "not_found",
        f"{name} has no drift {key}.",
        "Reload the drift list; the change may have been reverted.",
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
        f"this change is based on {expected}.",
        "Reload the endpoint and repeat the change.",
    )


def name_taken(name: str) -> Problem:
    return Problem(
        "name",
        name,
        f"Endpoint {name} already exists or is being deleted.",
        "Choose another name, or wait for the deletion.",
        "name_taken",
    )


def fixed_name(name: str, other: str) -> Problem:
    return Problem(
        "name",
        other,
        f"The name cannot be changed from {name} to {other}.",
        "Remove the field, or create another endpoint.",
        "fixed",
    )


LONGEST_NOTE = 500


def parse_note(value: Any) -> str:
    note = value.strip().replace("\r\n", "\n") if isinstance(value, str) else None
    if note is None or len(note) > LONGEST_NOTE or not note.replace("\n", "").isprintable():
        remedy = f"Enter up to {LONGEST_NOTE} printable characters, or none."
        raise SpecErrors([Problem("note", None, "Invalid note.", remedy, "invalid_note")])
    return note


def key_taken(label: str) -> Problem:
    return Problem(
        "name",
        label,
        f"Key {label} already exists.",
        "Choose another name, or revoke that key first.",
        "name_taken",
    )


def group_taken(label: str) -> Problem:
    return Problem(
        "name", label, f"Key group {label} already exists.", "Choose another name.", "name_taken"
    )
