"""Dry run of a change: run all checks, then roll back.

    with rehearsal():
        endpoint = actions.update(...)   # checks rights and rules like the real change

Nothing remains in the database or the audit log, and no task is sent. Code with other side effects
checks `is_rehearsing` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from django.db import transaction

_active: ContextVar[bool] = ContextVar("emberline_rehearsal", default=False)


def is_rehearsing() -> bool:
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
