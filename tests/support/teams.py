"""Two teams: `ours` with Erin (operator), Frank (viewer) and Gina (admin), `theirs` with Hugo.

Nora has an account without permissions. Each team has an endpoint, and one endpoint has no team.
"""

from __future__ import annotations

from dataclasses import dataclass

from console.accounts.models import Membership, Team, User
from endpoints.models import Endpoint
from tests.support.console import make_endpoint
from tests.support.people import PASSWORD

CANARY = "kanarienvogel"
OURS, NOBODYS = "our-own", "nobodys"


@dataclass(frozen=True)
class Teams:
    ours: Team
    theirs: Team
    erin: User
    frank: User
    gina: User
    hugo: User
    nora: User


def member(name: str, team: Team | None = None, role: str = "") -> User:
    user = User.objects.create_user(name, password=PASSWORD, role="member")
    if team is not None:
        Membership.objects.create(team=team, user=user, role=role)
    return user


def teams() -> Teams:
    ours = Team.objects.create(name="Ours", slug="ours")
    theirs = Team.objects.create(name="Theirs", slug="theirs")
    return Teams(
        ours=ours,
        theirs=theirs,
        erin=member("erin", ours, "operator"),
        frank=member("frank", ours, "viewer"),
        gina=member("gina", ours, "admin"),
        hugo=member("hugo", theirs, "admin"),
        nora=member("nora"),
    )


def their_endpoints(made: Teams) -> None:
    """Create an endpoint for each team and one without a team."""
    for name, team in ((OURS, made.ours), (CANARY, made.theirs), (NOBODYS, None)):
        make_endpoint(name)
        Endpoint.objects.filter(name=name).update(team=team)
