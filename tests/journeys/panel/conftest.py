"""Fixtures of the panel journey."""

from tests.support.dashboards.fixtures import *  # noqa: F403
