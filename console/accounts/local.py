"""The console itself, as an actor: whoever runs its commands on its own machine, as its own user,
could change its database too, and needs no account.

Promises that no row is made of it and that the trail calls it "system", as what the console does
by itself.
"""

from __future__ import annotations

from typing import Any

from console.accounts.models import Role, User

NAME = "system"
PROOF_KEY = "emberline.local"
PROOF = object()
"""Beside a request of this very process. What comes over a network is text."""


def system() -> User:
    user = User(username=NAME, role=Role.ADMIN.value)
    user.team_roles = {}  # it is in no table, so nothing is to be read of it
    return user


def row(actor: Any) -> User | None:
    """What a foreign key to the actor holds; None for the console itself."""
    return actor if isinstance(actor, User) and actor.pk is not None else None
