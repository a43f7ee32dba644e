"""Settings of all tests: hypothesis, clusters, garbage collection, child processes.

The same examples every run and none of them timed, so that a run says something about the change
and not about luck. HYPOTHESIS_PROFILE=explore looks for new ones.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
from collections.abc import Generator, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import django
import httpx
import pytest
from hypothesis import settings

from tests.support import child_processes
from tests.support.alertmanager import alertmanager  # noqa: F401
from tests.support.child_processes import ChildProcesses
from tests.support.dashboards.fixtures import scraping  # noqa: F401
from tests.support.database_template import DatabaseTemplate, digest
from tests.support.kube.fixtures import *  # noqa: F403
from tests.support.patience import extend_deadlines

if TYPE_CHECKING:
    from playwright.sync_api import Browser

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
ROOT = Path(__file__).resolve().parents[1]
CHILDREN = ChildProcesses()
# Each client without a context of its own reads all CAs: 20 ms of CPU time a request.
httpx._transports.default.create_ssl_context = lru_cache(maxsize=8)(httpx.create_ssl_context)
gc.disable()  # until the tests are collected: next to nothing of it is garbage


def pytest_sessionstart() -> None:
    if child_processes.supported():
        CHILDREN.adopt_orphans()


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name binary values by their parameter: the name of a test is the same in every process, also
    where the value holds a time, and can be read and typed."""
    if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()):
        return argname
    return None


def pytest_collection_finish() -> None:
    """Modules and test items live until the end; without this, every full garbage collection
    reads all of them again. What lives after that is little, for which the interpreter's own
    thresholds collect too often: a tenth of the run's computing."""
    extend_deadlines()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """Fail the last test of the run when a child process outlives every fixture."""
    try:
        yield
    finally:
        CHILDREN.note(item.nodeid)
    if nextitem is not None:
        return
    forks = sys.modules.get("tests.support.vllm.forks")
    if forks is not None:  # it serves the whole run and ends with it
        forks.close_fork_server()
    if left := CHILDREN.left_behind():
        pytest.fail("child processes left behind:\n" + "\n".join(left), pytrace=False)


@pytest.fixture(scope="session")
def _database_template(django_db_modify_db_settings: None) -> DatabaseTemplate | None:
    from django.apps import apps
    from django.conf import settings
    from django.db import connection

    if connection.vendor != "sqlite":
        return None
    folders = [Path(app.path) / "migrations" for app in apps.get_app_configs()]
    files = [file for folder in folders for file in folder.glob("**/*.py")]
    keys = settings.EMBERLINE.encryption_keys
    name = digest(files, sys.version, sqlite3.sqlite_version, django.__version__, *keys)
    return DatabaseTemplate(ROOT / "var" / "test-databases", name)


@pytest.fixture(scope="session")
def django_db_keepdb(_database_template: DatabaseTemplate | None) -> bool:
    """Whether the test database exists; `migrate` then finds nothing to do in it."""
    return _database_template is not None and _database_template.copy(_database())


@pytest.fixture(scope="session")
def django_db_setup(
    _database_template: DatabaseTemplate | None, django_db_keepdb: bool, django_db_setup: None
) -> None:
    if _database_template is None:
        return
    if not django_db_keepdb:
        _database_template.keep(_database())
    _keep_types_and_permissions()


def _keep_types_and_permissions() -> None:
    """Leave content types and permissions in the database which a transactional test empties.

    They are the same before every test; Django deletes and creates them again after each, a
    twentieth of the run's computing.
    """
    from django.core.management.commands import flush

    of_all_tables = flush.sql_flush
    kept = {'DELETE FROM "django_content_type";', 'DELETE FROM "auth_permission";'}

    def sql_flush(*args: Any, **options: Any) -> list[str]:
        return [sql for sql in of_all_tables(*args, **options) if sql not in kept]

    flush.sql_flush = sql_flush
    flush.emit_post_migrate_signal = lambda *_: None


def _database() -> Path:
    from django.db import connection

    return Path(connection.creation._get_test_db_name())


@pytest.fixture(scope="module")
def _chromium() -> Iterator[Browser]:
    """Not for the session: its event loop runs in this thread, where async tests need theirs."""
    from tests.support.browser import chromium

    # Django would take the tests for async code.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    with chromium() as browser:
        yield browser
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def chrome(_chromium: Browser) -> Iterator[Browser]:
    """The module's Chromium; pages left open would go on polling beside the next test."""
    yield _chromium
    for context in _chromium.contexts:
        context.close()


@pytest.fixture(autouse=True)
def _throttles_forget(request: pytest.FixtureRequest) -> Iterator[None]:
    """People of two tests have one number, so one's requests must not be counted against another's.

    Only where a database is asked for: other tests need no Django.
    """
    yield
    if {"db", "transactional_db", "django_db_setup"} & set(request.fixturenames):
        from django.core.cache import cache

        cache.clear()
