"""Fixtures of the operator's journeys."""

from tests.console.people.conftest import people, teams, two_teams  # noqa: F401
from tests.support.furnished.fixtures import *  # noqa: F403
