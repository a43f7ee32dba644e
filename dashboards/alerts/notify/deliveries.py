"""Send deliveries: one attempt at a time, until accepted or failed for good.

A conditional update claims each attempt and defers the next one, so that one process sends and a
crash costs a minute. The delivery id is the same in each attempt; stored errors hold no secret.
Delivery is at least once: a crash right after acceptance repeats the message.
"""

from __future__ import annotations

import logging
from collections import Counter
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import F
from django.utils import timezone

from console.core.counters import increment
from console.vault import store
from dashboards.alerts.notify.channels import BY_KIND, DeliveryTarget
from dashboards.alerts.notify.models import Delivery, DeliveryState, Receiver, ReceiverKind
from dashboards.alerts.notify.protocol.http_post import PostError

log = logging.getLogger(__name__)

LEASE = timedelta(seconds=60)
GIVE_UP = timedelta(hours=3)
"""Older notifications are outdated; alerts still firing are repeated by their group."""
PAUSES_S: Final = (10, 20, 40, 80, 160, 320, 600)
_AT_ONCE, _OF_ONE = 40, 2
_KEPT = timedelta(days=30)


def due_deliveries(now: datetime) -> list[UUID]:
    """Return due deliveries, the longest waiting first and few a receiver: slow ones block no
    other.
    """
    due = Delivery.objects.filter(state=DeliveryState.WAITING, next_at__lte=now)
    taken: Counter[UUID | None] = Counter()
    found = []
    for pk, receiver in due.order_by("next_at").values_list("pk", "receiver_id")[:500]:
        taken[receiver] += 1
        if taken[receiver] <= _OF_ONE:
            found.append(pk)
    return found[:_AT_ONCE]


def attempt_delivery(delivery: UUID | str) -> None:
    now = timezone.now()
    row = Delivery.objects.select_related("receiver").filter(pk=delivery).first()
    if row is None or row.state != DeliveryState.WAITING or row.next_at > now:
        return
    mine = Delivery.objects.filter(pk=row.pk, state=DeliveryState.WAITING, attempts=row.attempts)
    if not mine.update(attempts=F("attempts") + 1, next_at=now + LEASE):
        return  # claimed by another process
    row.attempts += 1
    try:
        _send(row)
    except PostError as error:
        _not_sent(row, error)
    else:
        _write(row, DeliveryState.SENT, "")


def delivery_target(receiver: Receiver) -> DeliveryTarget:
    where = vault_names(receiver)
    return DeliveryTarget(store.get(where["url"]), store.get(where["secret"]), tuple(receiver.to))


def receiver_addresses() -> dict[str, str]:
    """Return the address of each URL receiver by name, empty if it cannot be decrypted.

    Used for the configuration of Alertmanagers.
    """
    rows = Receiver.objects.exclude(kind=ReceiverKind.EMAIL)
    return {one.name: store.get(vault_names(one)["url"]) for one in rows}


def vault_names(receiver: Receiver) -> dict[str, str]:
    return {name: f"notify/{receiver.pk}/{name}" for name in ("url", "secret")}


def _send(row: Delivery) -> None:
    receiver = row.receiver
    if receiver is None:
        raise PostError("The receiver was removed.", permanent=True)
    if not receiver.enabled and not row.test:
        raise PostError("The receiver is disabled.", permanent=True)
    found = delivery_target(receiver)
    if not (found.url or found.to) or (receiver.signed and not found.secret):
        text = "URL or secret cannot be decrypted with the current encryption key."
        raise PostError(f"{text} Enter it again.", permanent=True)
    BY_KIND[row.kind](found, row.body, str(row.pk))


def _not_sent(row: Delivery, error: PostError) -> None:
    now = timezone.now()
    pause = max(PAUSES_S[min(row.attempts, len(PAUSES_S)) - 1], error.after_s)
    next_at = now + timedelta(seconds=pause)
    if error.permanent or row.test or next_at > row.created_at + GIVE_UP:
        _write(row, DeliveryState.FAILED, str(error))
        return
    _write(row, DeliveryState.WAITING, str(error), next_at)


def _write(row: Delivery, state: str, error: str, next_at: datetime | None = None) -> None:
    """Update the row only while this process holds the attempt."""
    now = timezone.now()
    mine = Delivery.objects.filter(pk=row.pk, state=DeliveryState.WAITING, attempts=row.attempts)
    over = state != DeliveryState.WAITING
    facts = {"state": state, "error": error[:300], "ended_at": now if over else None}
    mine.update(**facts, next_at=next_at or now)
    increment("notifications", kind=row.kind, outcome=state if over else "retried")
    if error:
        log.warning("delivery %s to receiver %s failed: %s", row.pk, row.receiver_name, error)


def prune() -> None:
    ended = Delivery.objects.exclude(state=DeliveryState.WAITING)
    ended.filter(created_at__lt=timezone.now() - _KEPT).delete()
