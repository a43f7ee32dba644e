from __future__ import annotations

import pytest

from tests.support import teams as made
from tests.support.people import Cast, cast
from tests.support.teams import Teams


@pytest.fixture
def people(db: None) -> Cast:
    return cast()


@pytest.fixture
def teams(db: None) -> Teams:
    return made.teams()


@pytest.fixture
def two_teams(teams: Teams) -> Teams:
    made.their_endpoints(teams)
    return teams
