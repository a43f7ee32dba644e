"""Fixtures of all dashboard tests."""

from tests.support.dashboards.fixtures import *  # noqa: F403
