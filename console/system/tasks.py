"""Periodic observation of managed programs."""

from __future__ import annotations

from celery import shared_task

from console.provisioners.base import ProvisionError
from console.tasks import BaseTask


@shared_task(base=BaseTask, throws=(ProvisionError,), name="console.system.tasks.look")
def observe_programs() -> None:
    from console.system import program_watch

    program_watch.observe()
