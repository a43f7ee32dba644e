"""Audit log integrity for the System page, the doctor and the command line."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from console.audit import chain
from console.audit.models import AuditChain, AuditEvent
from console.audit.record import record
from console.vault.encryption import Unreadable
from console.vault.key_rotation import EncryptedColumns

_TARGET = "audit/log"
BROKEN_REMEDY = (
    "Compare the row with a backup or shipped logs. Then run emberline audit reseal,"
    " which accepts the rows as they are and records that."
)

SEALED = EncryptedColumns(
    AuditChain, ("key",), purpose=lambda _row, _column: chain.PURPOSE, title=lambda _row: _TARGET
)


@dataclass(frozen=True, slots=True)
class ChainState:
    """Stored state of the chain.

    `waiting_since` is the time of the oldest unlinked row, read only if the chain is intact.
    """

    checked_at: datetime | None
    problem: str
    first_sequence: int
    last_sequence: int
    waiting_since: datetime | None


def chain_state() -> ChainState | None:
    audit_chain = AuditChain.objects.filter(pk=1).first()
    if audit_chain is None:
        return None
    oldest = None
    if audit_chain.checked_at is not None and not audit_chain.problem:
        oldest = AuditEvent.objects.filter(sequence=None).order_by("pk").first()
    return ChainState(
        audit_chain.checked_at,
        audit_chain.problem,
        audit_chain.first_sequence,
        audit_chain.last_sequence,
        oldest.at if oldest else None,
    )


def verify() -> tuple[str, bool]:
    """Verify every row; return a summary and whether the log is intact."""
    try:
        chain.link_rows()
        verdict = chain.check_next(limit=None)
    except Unreadable as error:
        return f"The audit log cannot be verified. {error}", False
    if verdict.problem:
        text = f"The audit log was changed outside the console: {verdict.problem}. {BROKEN_REMEDY}"
        return text, False
    return (
        f"Intact: {verdict.rows} rows, {verdict.waiting} not linked yet, head {verdict.head}.",
        True,
    )


def compare(head: str) -> str:
    """Return the problem with the row that an earlier verification reported as head, else ""."""
    place, _, seal = head.partition(":")
    if not place.isdecimal() or not seal:
        return f"--head {head!r} cannot be used: write it as an earlier verification printed it."
    audit_chain = AuditChain.objects.get(pk=1)
    if int(place) < audit_chain.first_sequence:
        return ""  # pruned since; verified by the chain itself
    expected_seal = (
        audit_chain.first_seal
        if int(place) == audit_chain.first_sequence
        else getattr(AuditEvent.objects.filter(sequence=int(place)).first(), "seal", "")
    )
    if expected_seal.startswith(seal):
        return ""
    return (
        f"The row at place {place} is not the one of head {head}: the log was put back or redone."
    )


def reseal() -> str:
    problem = chain.reseal_chain()
    record(None, "audit.reseal", _TARGET, {"broken": problem or None})
    return "A new chain begins with the rows as they are." + (
        f" Before, it was broken: {problem}." if problem else ""
    )


def prune(before: str) -> str:
    """Raise ValueError for an invalid date, chain.BrokenChainError for a modified log."""
    day = datetime.strptime(before, "%Y-%m-%d").replace(tzinfo=UTC)
    chain.link_rows()
    gone = chain.prune_rows(day)
    if gone:
        record(None, "audit.prune", _TARGET, {"rows": gone, "before": before})
    return f"Deleted {gone} rows older than {before}."
