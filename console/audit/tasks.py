"""Background tasks of the audit log: link new rows and verify the chain."""

from __future__ import annotations

from celery import shared_task

from console.tasks import BaseTask


def _has_unlinked_rows() -> bool:
    from console.audit import chain

    return chain.has_unlinked_rows()


@shared_task(
    base=BaseTask, has_work=staticmethod(_has_unlinked_rows), name="console.audit.tasks.link"
)
def link() -> None:
    from console.audit import chain

    chain.link_rows()


@shared_task(base=BaseTask, name="console.audit.tasks.check")
def check() -> None:
    from console.audit import chain

    chain.check_next()
