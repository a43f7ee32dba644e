"""`manage.py emberline_admin --create`: create the first admin with a random password, printed
once.
"""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from console.accounts import selectors
from console.accounts.models import ApiToken, Role, User
from console.people import actions
from console.signon import factors


class Command(BaseCommand):
    help = "Create the first admin, or give an admin a new random password (--reset)."

    def add_arguments(self, parser: CommandParser) -> None:
        kind = parser.add_mutually_exclusive_group()
        kind.add_argument("--create", action="store_true", help="the default: if there is no admin")
        kind.add_argument("--reset", action="store_true", help="set a new random password")
        parser.add_argument(
            "--renew-unused",
            action="store_true",
            help="with --create: a new password for an only admin who never logged in",
        )
        parser.add_argument("--username", default="admin", help="default: admin")

    def handle(self, *_args: Any, **options: Any) -> None:
        username = options["username"]
        if options["reset"]:
            user = User.objects.filter(username=username, role=Role.ADMIN).first()
            if user is None:
                raise CommandError(f"Admin {username} does not exist; use --create.")
            password, ended = actions.reset_password(None, user)
            self._print(username, password)
            self.stdout.write(str(ended))
            if factors.turn_off(None, user):
                self.stdout.write(
                    "The second factor was removed. Set up a new one after the login."
                )
        elif options["renew_unused"] and (unused := _unused(username)):
            # The password was created by an `up` killed before it was shown.
            password, _nothing_to_end = actions.reset_password(None, unused)
            self._print(username, password)
        elif selectors.list_admins().exists():
            self.stdout.write("An admin already exists; nothing was changed.")
        else:
            _user, password = actions.create_user(None, username, Role.ADMIN)
            self._print(username, password)

    def _print(self, username: str, password: str) -> None:
        self.stdout.write(f"user:     {username}")
        self.stdout.write(f"password: {password}")
        self.stdout.write("This password is shown once. Change it on your profile page.")


def _unused(username: str) -> User | None:
    """Return the only user if it is an admin of that name who never logged in."""
    user = User.objects.filter(username=username, role=Role.ADMIN, last_login=None).first()
    alone = User.objects.count() == 1 and not ApiToken.objects.exists()
    return user if alone else None
