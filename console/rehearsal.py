"""A change carried out for its refusals and its outcome, and then not kept.

    with rehearsal():
        endpoint = actions.update(...)   # every right and rule is asked as for the real change

Promises that nothing of it stays in the database, that no task is sent and that the trail knows
nothing of it. What writes anywhere else asks `rehearsing` first. Knows no room.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import transaction

_active: ContextVar[bool] = ContextVar("emberline_rehearsal", default=False)


def rehearsing() -> bool:
    return _active.get()


@contextmanager
def rehearsal() -> Iterator[None]:
    mark = _active.set(True)
    try:
        with transaction.atomic():
            yield
            transaction.set_rollback(True)
    finally:
        _active.reset(mark)
