"""`manage.py emberline_migrate`: migrate the database and create the first admin.

Concurrent runs are serialized. The first admin's password is read from the file in
EMBERLINE_ADMIN_PASSWORD_FILE; it is never printed, and never set once an admin exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.executor import MigrationExecutor

from console.accounts import selectors
from console.accounts.models import Role
from console.core import environment
from console.people import actions

# Arbitrary, but unused by other programs in this database.
_LOCK = 0x656D626572


class Command(BaseCommand):
    help = "Migrate the database under a lock, then create the first admin (password from a file)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--check", action="store_true", help="change nothing; exit 1 if a migration is pending"
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        if options["check"]:
            self._check()
            return
        with _alone():
            call_command("migrate", interactive=False, verbosity=options["verbosity"])
            self._first_admin()

    def _check(self) -> None:
        executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
        if plan:
            names = ", ".join(f"{m.app_label}.{m.name}" for m, _backwards in plan[:3])
            raise CommandError(f"{len(plan)} migrations are not applied yet: {names}, ...")
        self.stdout.write("The database is up to date.")

    def _first_admin(self) -> None:
        if selectors.list_admins().exists():
            return
        password = environment.text(os.environ, "EMBERLINE_ADMIN_PASSWORD")
        if not password:
            self.stdout.write("No admin yet, and no EMBERLINE_ADMIN_PASSWORD_FILE: run")
            self.stdout.write("  python manage.py emberline_admin --create")
            return
        actions.create_user(None, "admin", Role.ADMIN, password)
        self.stdout.write("Created the user “admin” with the password from the file.")


@contextmanager
def _alone() -> Iterator[None]:
    """Hold a lock that ends with the connection, so a crashed run leaves none behind."""
    connection = connections[DEFAULT_DB_ALIAS]
    if connection.vendor != "postgresql":  # SQLite locks the file itself
        yield
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [_LOCK])
    try:
        yield
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_unlock(%s)", [_LOCK])
