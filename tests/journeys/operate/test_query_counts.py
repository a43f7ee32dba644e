from __future__ import annotations

from pathlib import Path

import pytest

from console.audit.record import record
from console.people import actions, team_actions, token_actions
from tests.support.people import Cast, client_of
from tests.support.query_counts import check

KEPT = Path(__file__).with_name("query_counts.json")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "url",
    [
        "/profile/",
        "/access/",
        "/access/teams/",
        "/access/teams/t0/",
        "/access/tokens/",
        "/audit/",
        "/api/v1/me/",
    ],
)
def test_number_of_queries_is_constant(people: Cast, url: str) -> None:
    for number in range(12):
        record(people.alice, "endpoint.scale", f"endpoint/n{number}", {"replicas": [1, 2]})
        actions.create_user(people.ada, f"person{number}", "viewer")
        token_actions.create_token(people.ada, f"token{number}", "viewer")
        team_actions.create(people.ada, {"name": f"t{number}"})
        team_actions.set_member(people.ada, "t0", f"person{number}", "viewer")
    check(client_of(people.ada), url, KEPT)
