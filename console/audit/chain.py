"""Tamper evidence of the audit log: each row is sealed when written, then linked into a chain.

The first seal is an HMAC of a row's content, computed by the writer without a lock. A background
task links committed rows in order: a linked row's seal is an HMAC of its content, its position and
the previous seal, and `AuditChain` seals both ends. Changing, removing, inserting or reordering
rows breaks the chain. The key is stored encrypted: database access without
EMBERLINE_ENCRYPTION_KEY does not suffice to compute a seal.
"""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

from django.db import transaction
from django.db.models import Max
from django.utils import timezone

from console.audit.models import AuditChain, AuditEvent
from console.core.counters import increment
from console.vault import encryption

log = logging.getLogger(__name__)

PURPOSE = "audit/key"
BATCH = 500
# Rows per scheduled check: a few seconds of work; the next check continues after them.
CHECK_BATCH = 100_000


class ChainRow(Protocol):
    """AuditEvent, or its historical model in a migration."""

    pk: Any
    at: datetime
    actor_id: Any
    actor_name: str
    team_id: Any
    verb: str
    target: str
    changes: Any
    request_id: str
    note: str


@dataclass(frozen=True, slots=True)
class ChainVerdict:
    """Result of a verification.

    `problem` describes the first modified row, "" for none. `waiting` rows are not linked yet.
    `head` identifies the last linked row; noted elsewhere, it reveals a later restore of an older
    database.
    """

    rows: int
    waiting: int
    head: str
    problem: str = ""
    complete: bool = True


class BrokenChainError(Exception):
    """The action needs an intact chain; the text names the first broken row."""


def new_key() -> str:
    """Return a new key, encrypted for storage."""
    return encryption.seal(secrets.token_hex(32), PURPOSE)


def open_key(stored: str) -> bytes:
    return bytes.fromhex(encryption.unseal(stored, PURPOSE))


def compute_row_seal(key: bytes, row: ChainRow) -> str:
    return _hmac(key, "row", _content(row))


def compute_link_seal(key: bytes, before: str, sequence: int, row: ChainRow) -> str:
    return _hmac(key, "link", before, sequence, row.pk, _content(row))


def compute_ends_seal(key: bytes, chain: Any) -> str:
    """Return the seal of both ends, which reveals truncation."""
    ends = (chain.first_sequence, chain.first_seal, chain.last_sequence, chain.last_seal)
    return _hmac(key, "ends", *ends)


def seal_new(event: AuditEvent) -> str:
    """Return the seal of a row to be written.

    A missing seal is better than a missing row: an unreadable key is logged and counted, and the
    verification names the row.
    """
    try:
        return compute_row_seal(_key(), event)
    except encryption.Unreadable as error:
        log.error("Writing audit rows without seals: %s", error)
        increment("audit_unsealed_rows")
        return ""


def has_unlinked_rows() -> bool:
    return AuditEvent.objects.filter(sequence=None).exists()


def link_rows() -> int:
    """Append unlinked rows in id order; return how many.

    Rows with a wrong seal stay unlinked, where the verification reports them. A chain with modified
    ends is not continued, since that would seal the modification.
    """
    if not has_unlinked_rows():
        return 0
    key = _key()
    with transaction.atomic():
        chain = _lock_chain()
        if _wrong_ends(key, chain, _highest()):
            increment("audit_links_refused")
            return 0
        linked = []
        for event in AuditEvent.objects.filter(sequence=None).order_by("pk").iterator(BATCH):
            if hmac.compare_digest(event.seal, compute_row_seal(key, event)):
                _append(key, chain, event)
                linked.append(event)
        _save(key, chain, linked)
    return len(linked)


def verify_chain(start: int = 0, limit: int | None = None) -> ChainVerdict:
    """Recompute the chain after row `start`, for at most `limit` rows (None: all)."""
    highest = _highest()  # read before the chain: rows may be linked concurrently
    chain = _chain()
    problem, checked = _problem(_key(), chain, highest, start, limit)
    if problem and AuditChain.objects.get(pk=1).first_sequence != chain.first_sequence:
        return verify_chain(start, limit)  # rows were pruned concurrently
    last = max(start, chain.first_sequence) + checked
    waiting = AuditEvent.objects.filter(sequence=None).count()
    head = f"{chain.last_sequence}:{chain.last_seal[:16]}"
    return ChainVerdict(checked, waiting, head, problem, complete=last >= chain.last_sequence)


def check_next(limit: int | None = CHECK_BATCH) -> ChainVerdict:
    """Verify the next part of the chain (None: all of it) and store the result for the pages."""
    begin = _chain().checked_sequence if limit else 0
    verdict = verify_chain(begin, limit)
    position = 0 if verdict.complete or verdict.problem else begin + verdict.rows
    increment("audit_checks", outcome="broken" if verdict.problem else "intact")
    if verdict.problem:
        log.error("Audit log modified outside the console: %s", verdict.problem)
    state: dict[str, Any] = {"checked_at": timezone.now(), "checked_sequence": position}
    # A problem stays until a full verification finds none.
    if verdict.problem or (begin == 0 and verdict.complete):
        state["problem"] = verdict.problem[:300]
    AuditChain.objects.filter(pk=1).update(**state)
    return verdict


def reseal_chain() -> str:
    """Accept all rows as they are and start a new chain; return the previous problem.

    The key is replaced only if unreadable, since other processes cache it.
    """
    with transaction.atomic():
        chain = _lock_chain()
        try:
            problem = verify_chain().problem
        except encryption.Unreadable:
            problem, chain.key = "the key of the audit log cannot be read", new_key()
        chain.first_sequence, chain.first_seal = 0, ""
        chain.last_sequence, chain.last_seal = 0, ""
        chain.problem, chain.checked_sequence = "", 0
        key = open_key(chain.key)
        AuditEvent.objects.update(sequence=None)
        batch: list[AuditEvent] = []
        for event in AuditEvent.objects.order_by("pk").iterator(BATCH):
            _append(key, chain, event)
            batch.append(event)
            if len(batch) == BATCH:
                _write(batch)
                batch.clear()
        _save(key, chain, batch)
    return problem


def prune_rows(before: datetime) -> int:
    """Delete rows older than `before` and move the start of the chain; return how many."""
    with transaction.atomic():
        chain = _lock_chain()
        younger = AuditEvent.objects.filter(sequence__gt=chain.first_sequence, at__gte=before)
        first_kept = younger.order_by("sequence").values_list("sequence", flat=True).first()
        cut = (first_kept or chain.last_sequence + 1) - 1
        verdict = verify_chain()
        if verdict.problem:
            raise BrokenChainError(verdict.problem)
        if cut <= chain.first_sequence:
            return 0
        chain.first_sequence, chain.first_seal = cut, AuditEvent.objects.get(sequence=cut).seal
        gone, _ = AuditEvent.objects.filter(sequence__lte=cut).delete()
        _save(_key(), chain, [])
    return gone


def _problem(
    key: bytes, chain: AuditChain, highest: int, start: int, limit: int | None
) -> tuple[str, int]:
    """Return the first problem ("" for none) and the number of verified rows."""
    if wrong := _wrong_ends(key, chain, highest):
        return wrong, 0
    stray = AuditEvent.objects.filter(sequence__lte=chain.first_sequence).first()
    if stray is not None:
        return f"{_describe_row(stray)} precedes the first sealed row: it was inserted", 0
    for event in AuditEvent.objects.filter(sequence=None).order_by("pk").iterator(BATCH):
        if not hmac.compare_digest(event.seal, compute_row_seal(key, event)):
            return f"{_describe_row(event)} was not written by the console, or was changed later", 0
    return _links(key, chain, max(start, chain.first_sequence), limit)


def _wrong_ends(key: bytes, chain: AuditChain, highest: int) -> str:
    if not hmac.compare_digest(chain.seal, compute_ends_seal(key, chain)):
        return "the recorded ends of the log (audit_auditchain) were changed"
    if highest > chain.last_sequence:
        return f"row {highest} follows the last sealed row: it was inserted"
    return ""


def _highest() -> int:
    return AuditEvent.objects.aggregate(Max("sequence"))["sequence__max"] or 0


def _links(key: bytes, chain: AuditChain, start: int, limit: int | None) -> tuple[str, int]:
    before = chain.first_seal
    if start > chain.first_sequence:
        before = getattr(AuditEvent.objects.filter(sequence=start).first(), "seal", "")
    end = chain.last_sequence if limit is None else min(chain.last_sequence, start + limit)
    place = start
    for event in _rows_between(start, end):
        if event.sequence != place + 1:
            return _missing_row(place + 1, (event.sequence or 0) - 1), place - start
        if not hmac.compare_digest(
            event.seal, compute_link_seal(key, before, event.sequence, event)
        ):
            return f"{_describe_row(event)} was changed or moved", place - start
        before, place = event.seal, event.sequence
    if place < end:
        return _missing_row(place + 1, end), place - start
    if end == chain.last_sequence and before != chain.last_seal:
        return f"the last row ({end}) is not the one that was sealed last", place - start
    return "", place - start


def _rows_between(start: int, end: int) -> Iterator[AuditEvent]:
    rows = AuditEvent.objects.filter(sequence__gt=start, sequence__lte=end)
    return rows.order_by("sequence").iterator(BATCH)


def _missing_row(first: int, last: int) -> str:
    which = f"row {first} is" if first == last else f"rows {first} to {last} are"
    return f"{which} missing: deleted or moved"


def _describe_row(event: AuditEvent) -> str:
    when = event.at.astimezone(UTC)
    return f"row {event.pk} ({when:%Y-%m-%d %H:%M:%S} UTC, {event.actor_name} {event.verb})"


def _append(key: bytes, chain: AuditChain, event: AuditEvent) -> None:
    event.sequence = chain.last_sequence + 1
    event.seal = compute_link_seal(key, chain.last_seal, event.sequence, event)
    chain.last_sequence, chain.last_seal = event.sequence, event.seal


def _save(key: bytes, chain: AuditChain, linked: list[AuditEvent]) -> None:
    _write(linked)
    chain.seal, chain.linked_at = compute_ends_seal(key, chain), timezone.now()
    chain.save()


def _write(linked: list[AuditEvent]) -> None:
    AuditEvent.objects.bulk_update(linked, ["sequence", "seal"], batch_size=BATCH // 5)


def _chain() -> AuditChain:
    chain = AuditChain.objects.filter(pk=1).first()
    if chain is None:  # created by a migration, so only missing if removed
        AuditChain.objects.get_or_create(pk=1, defaults=_fresh(new_key()))
        chain = AuditChain.objects.get(pk=1)
    return chain


def _lock_chain() -> AuditChain:
    _chain()
    return AuditChain.objects.select_for_update(no_key=True).get(pk=1)


def _fresh(stored: str) -> dict[str, Any]:
    return {"key": stored, "seal": compute_ends_seal(open_key(stored), AuditChain())}


@lru_cache(maxsize=1)
def _key() -> bytes:
    return open_key(_chain().key)


def _hmac(key: bytes, *parts: object) -> str:
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()


def _content(row: ChainRow) -> str:
    content = (
        row.at.astimezone(UTC).isoformat(timespec="microseconds"),
        row.actor_id,
        row.actor_name,
        row.team_id,
        row.verb,
        row.target,
        _normalize(row.changes),
        row.request_id,
        row.note,
    )
    return json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _normalize(value: Any) -> Any:
    """Normalize floats: seals must not depend on the database (PostgreSQL: 1e20 is an integer)."""
    if isinstance(value, dict):
        return {key: _normalize(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normalize(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
