"""Users: Ada is admin, Alice operator, Charlie viewer, Dora deactivated."""

from __future__ import annotations

from dataclasses import dataclass

from django.test import Client

from console.accounts.models import User

PASSWORD = "correct-horse-7"


@dataclass(frozen=True)
class Cast:
    ada: User
    alice: User
    charlie: User
    dora: User


def cast() -> Cast:
    make = User.objects.create_user
    return Cast(
        ada=make("ada", password=PASSWORD, role="admin"),
        alice=make("alice", password=PASSWORD, role="operator"),
        charlie=make("charlie", password=PASSWORD, role="viewer"),
        dora=make("dora", password=PASSWORD, role="admin", is_active=False),
    )


def client_of(user: User) -> Client:
    """Return a client logged in as the user; exceptions give a 500 page."""
    client = Client(raise_request_exception=False)
    client.force_login(user)
    return client
