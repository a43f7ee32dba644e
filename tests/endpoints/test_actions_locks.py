"""Row locks of actions beside the writes of a reconcile pass, over PostgreSQL."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import connection, transaction

from console.claims import mark_due, take_claim
from endpoints import actions
from endpoints.models import Endpoint, EndpointEvent, EndpointStatus
from tests.support.console import make_endpoint
from tests.support.database_template import postgresql_only

ROOT = Path(__file__).resolve().parents[2]


@postgresql_only
@pytest.mark.django_db(transaction=True)
def test_action_and_pass_on_one_endpoint_do_not_wait_for_each_other() -> None:
    """The action locks the endpoint, then its status; the pass writes the status, then commits an
    event that refers to the endpoint.
    """
    endpoint = make_endpoint("demo")
    held = take_claim(EndpointStatus, endpoint.pk)
    assert held is not None
    is_locked, is_written = threading.Event(), threading.Event()

    def change() -> None:
        with transaction.atomic():
            actions.locked("demo")
            is_locked.set()
            assert is_written.wait(30)
            mark_due(EndpointStatus, endpoint.pk)
        connection.close()

    def run_pass() -> None:
        assert is_locked.wait(30)
        with transaction.atomic():
            held.write(message="Serving.")
            row = Endpoint.objects.get(pk=endpoint.pk)
            EndpointEvent.objects.create(endpoint=row, kind="Test", message="A pass.")
            is_written.set()
        connection.close()

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(change), pool.submit(run_pass)]:
            done.result(60)
    assert EndpointEvent.objects.filter(kind="Test").count() == 1


def test_every_lock_admits_rows_that_refer_to_the_locked_one() -> None:
    """Without `no_key`, PostgreSQL makes the inserting transaction wait: a deadlock."""
    locks = [
        f"{file.relative_to(ROOT)}: {lock}"
        for app in ("cachetier", "console", "dashboards", "endpoints")
        for file in (ROOT / app).rglob("*.py")
        for lock in re.findall(r"select_for_update\((?:[^()]|\([^()]*\))*\)", file.read_text())
        if "no_key=True" not in lock
    ]
    assert locks == []
