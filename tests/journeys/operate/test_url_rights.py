"""Every URL and method for every role gets the expected response.

Views which other rooms add later are found here: a list which forgot its viewer shows the canary.
"""

from __future__ import annotations

import re
from datetime import timedelta
from itertools import cycle
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts import credentials
from console.accounts.models import ApiToken, User
from tests.support.people import Cast, client_of
from tests.support.teams import CANARY, NOBODYS, OURS, Teams
from tests.support.urlwalk import BEARER, METHODS, OPEN, Place, places

PAGES = ("/api/v1/docs/", "/api/v1/docs/try/")  # below /api/, and for people
# The user's own account, or logging in: every account may.
ONESELF = re.compile(
    r"^/(login|logout|profile|accounts|signon|about)/|^/api/v1/(me|profile|sessions|tokens)/|^/healthz|^/readyz"
)


def _request(client: Client, method: str, path: str, headers: Any = None) -> Any:
    more = {} if method == "get" else {"data": {}, "content_type": "application/json"}
    return getattr(client, method)(path, headers=headers, **more)


def _with_a_refused(place: Place) -> list[str]:
    """The methods of the view and one that it does not have: none may tell more than another."""
    return [*place.methods, *[method for method in METHODS if method not in place.methods][:1]]


def _writes(place: Place) -> list[str]:
    return [method for method in place.methods if method != "get"]


def _others(found: list[Place]) -> list[Place]:
    return [one for one in found if one.path not in OPEN | BEARER and not ONESELF.match(one.path)]


def _read(response: Any) -> str:
    """A stream is not waited for."""
    if response.streaming:
        response.close()
        return ""
    return str(response.content.decode("utf-8", "replace"))


def _bearer(user: User, **limits: Any) -> dict[str, str]:
    clear, prefix, digest = credentials.make_token()
    facts = {"role": "admin", "name": prefix, **limits}
    ApiToken.objects.create(user=user, prefix=prefix, sha256=digest, **facts)
    return {"authorization": f"Bearer {clear}"}


def test_user_without_a_role_gets_only_their_own_pages(two_teams: Teams) -> None:
    client, wrong = client_of(two_teams.nora), []
    for place in _others(places(endpoint=CANARY)):
        due = (404,) if "endpoint" in place.about else (403,)
        for method in _with_a_refused(place):
            response = _request(client, method, place.path)
            if response.status_code not in due:
                wrong.append(f"{method} {place.path} {response.status_code}")
    assert wrong == []


@pytest.mark.parametrize(
    ("name", "endpoint"), [("erin", CANARY), ("gina", NOBODYS), ("frank", "absent")]
)
def test_foreign_and_unassigned_objects_are_404(two_teams: Teams, name: str, endpoint: str) -> None:
    client, wrong = client_of(getattr(two_teams, name)), []
    for place in places(endpoint=endpoint):
        for method in _with_a_refused(place) if "endpoint" in place.about else ():
            response = _request(client, method, place.path)
            if response.status_code != 404:
                wrong.append(f"{method} {place.path} {response.status_code}")
    assert wrong == []


def test_team_token_finds_no_other_teams(two_teams: Teams, people: Cast) -> None:
    """Not even an admin's."""
    headers, wrong = _bearer(people.ada, team=two_teams.ours), []
    found = [one for one in places(endpoint=CANARY) if one.path.startswith("/api/")]
    for place in _others(found):
        for method in _with_a_refused(place):
            response = _request(Client(), method, place.path, headers)
            body = _read(response)
            if "endpoint" in place.about and response.status_code != 404:
                wrong.append(f"{method} {place.path} {response.status_code}")
            if method == "get" and "endpoint" not in place.about and CANARY in body:
                wrong.append(f"{method} {place.path} shows the canary")
    assert wrong == []


def test_endpoint_of_another_team_is_named_nowhere(two_teams: Teams) -> None:
    client, shown = client_of(two_teams.gina), []
    for place in places(endpoint=OURS):
        response = client.get(place.path)
        body = _read(response)
        if CANARY in body or NOBODYS in body:
            shown.append(place.path)
        if response.status_code == 200:  # else nothing reads the parameters
            path = f"{place.path}?endpoint={NOBODYS}&name={NOBODYS}&q=kan"
            if CANARY in _read(client.get(path)):
                shown.append(path)
    assert shown == []


def test_team_admin_reads_team_objects_like_an_admin(two_teams: Teams, people: Cast) -> None:
    erin, ada, wrong = client_of(two_teams.erin), client_of(people.ada), []
    for place in places(endpoint=OURS):
        if place.about == {"endpoint"}:
            hers, due = (who.get(place.path).status_code for who in (erin, ada))
            if hers != due:
                wrong.append(f"{place.path} {hers} instead of {due}")
    assert wrong == []


def test_team_viewer_writes_nowhere(two_teams: Teams) -> None:
    client, wrote = client_of(two_teams.frank), []
    for place in _others(places(endpoint=OURS)):
        for method in _writes(place):
            response = _request(client, method, place.path)
            if response.status_code not in (403, 404, 405) and not HARMLESS.search(place.path):
                wrote.append(f"{method} {place.path} {response.status_code}")
    assert wrote == []


# Queries a router for a dry run, or renders code to copy: nothing is sent or stored.
# List filters and personal boards belong to the user.
HARMLESS = re.compile(
    r"/(explain|code|models/check|playground/prompts)/$|^/(endpoints/columns|overview/guide|saved-filters)/$"
    r"|^/dashboards/custom/(new|import|pin)/$"
)


def test_team_operator_changes_nothing_of_the_platform(two_teams: Teams) -> None:
    """Views that accept a role in any team are few, and each checks the team."""
    client, wrote = client_of(two_teams.erin), []
    for place in _others(places(endpoint=OURS)):
        harmless = FOR_SOME_TEAM.match(place.path) or HARMLESS.search(place.path)
        for method in _writes(place) if "endpoint" not in place.about else ():
            response = _request(client, method, place.path)
            if response.status_code not in (403, 404, 405) and not harmless:
                wrote.append(f"{method} {place.path} {response.status_code}")
    assert wrote == []


FOR_SOME_TEAM = re.compile(
    r"^/endpoints/(new|import|bulk)/|^/overview/proof/$|^/(api/v1/key-|keys/)groups/"
    r"|^/api/v1/(endpoints|endpoints/apply|fit|preview|silences|budgets|custom-boards)/$|^/alerts/silences/new/$"
    r"|^/api/v1/acknowledgements/$|^/alerts/acknowledge/$"
    r"|^/costs/budgets/new/$"
)


def test_revoked_token_gives_no_access(two_teams: Teams, people: Cast) -> None:
    """Each view meets two kinds of token without access, and each method of it another."""
    tokens = {"nonsense": {"authorization": "Bearer emb_" + "x" * 40}}
    tokens["revoked"] = _bearer(people.ada)
    ApiToken.objects.all().delete()
    tokens["expired"] = _bearer(people.ada, expires_at=timezone.now() - timedelta(seconds=1))
    tokens["inactive"] = _bearer(people.dora)
    kinds, wrong = cycle(tokens), []
    found = [one for one in _others(places(endpoint=OURS)) if one.path.startswith("/api/")]
    for place in found:
        if place.path not in PAGES:
            for method in ("get", "post"):
                kind = next(kinds)
                status = _request(Client(), method, place.path, tokens[kind]).status_code
                if status != 401:
                    wrong.append(f"{method} {place.path} {status} with a token that is {kind}")
            next(kinds)  # get and post of the next view meet other kinds
    assert wrong == []


def test_deactivated_user_is_logged_out_at_once(two_teams: Teams) -> None:
    client = client_of(two_teams.erin)
    User.objects.filter(pk=two_teams.erin.pk).update(is_active=False)
    for place in _others(places(endpoint=OURS)):
        assert client.get(place.path).status_code in (302, 401), place.path
