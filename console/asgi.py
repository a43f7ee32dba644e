"""ASGI application served by uvicorn: `uvicorn console.asgi:application`."""

from __future__ import annotations

import gc
import logging
import os
import sqlite3
import warnings
from typing import Any

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.checks.urls import check_resolver
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.urls import get_resolver

from console.telemetry import admin_server
from console.web.server.request_limits import limit_bodies

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

log = logging.getLogger(__name__)

LOCK_WAIT_MS = 2000

# whitenoise returns a plain iterator, which Django reads in a thread: as intended.
warnings.filterwarnings("ignore", message="StreamingHttpResponse must consume synchronous")

_held: dict[str, sqlite3.Connection] = {}


def hold_database(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Keep one extra database connection open. SQLite removes its WAL and index with the last
    connection and cannot recreate them on a full disk, where even reads then fail.
    """
    name = str(connection.settings_dict["NAME"])
    if connection.vendor != "sqlite" or name in _held:
        return
    try:
        held = sqlite3.connect(name, check_same_thread=False)
        held.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opens the WAL
    except sqlite3.Error as error:  # retried with the next connection
        log.warning(
            "Cannot keep a connection to database %s open; reads fail on a full disk: %s",
            name,
            error,
        )
    else:
        _held[name] = held


def answer_soon(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Let a request wait for SQLite's lock for 2 s, twice within the 5 s of an answer. Background
    tasks, which nobody waits for, keep the 20 s of the settings.
    """
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_MS}")


connection_created.connect(hold_database)
connection_created.connect(answer_soon)
_django = get_asgi_application()

from console.api.access import identify_sender  # noqa: E402  (its models need Django set up)
from console.api.schema import load_extensions  # noqa: E402

application = limit_bodies(_django, identify_sender)
load_extensions()
check_resolver(get_resolver())  # imports every page's code now, not in the first request
# Objects loaded so far are permanent: exclude them from garbage collection, which would pause
# requests by a tenth of a second each time.
gc.collect()
gc.freeze()
admin_server.start(settings.EMBERLINE.admin, admin_server.AdminSubject("web"))
